// The windows that convolutions and pools slide over an image, as the attributes of a command say.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "opcodes/command.h"

namespace tape {

/// Entries are those of the spatial axes H and W; a row of one spatial axis has H = 1 with a window of 1.
struct Windows {
  using Pair = std::array<int64_t, 2>;
  Pair kernel{1, 1}, stride{1, 1}, low{0, 0}, high{0, 0}, dilation{1, 1};

  /// Windows along an axis of `size` elements, 0 where none fits.
  [[nodiscard]] int64_t count(size_t axis, int64_t size) const;
  /// Elements along an axis of a transposed convolution of `size` elements; nullopt where that is less than one or too
  /// many.
  [[nodiscard]] std::optional<int64_t> transposed(size_t axis, int64_t size, int64_t output_pad) const;
};

/// Spatial axes of a convolution or pooling row.
[[nodiscard]] int spatial_axes(const OpInfo& op);

/// An attribute that holds one value for all spatial axes or one for each; `fallback` where it is not given.
[[nodiscard]] Windows::Pair per_axis(const Command& command, std::string_view name, Windows::Pair fallback);

/// The windows of a verified command. `kernel`: the last sizes of its weight, one for each spatial axis; not looked at
/// where the row has kernel=.
[[nodiscard]] Windows windows_of(const Command& command, std::span<const int64_t> kernel);

}  // namespace tape
