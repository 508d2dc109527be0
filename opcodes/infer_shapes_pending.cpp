#include "opcodes/infer_rules.h"

namespace tape::infer_rules {
Broken map(const Checked& c) { return c.broken("pending"); }
Broken map_reduce(const Checked& c) { return c.broken("pending"); }
Broken conv(const Checked& c) { return c.broken("pending"); }
Broken conv_input_grad(const Checked& c) { return c.broken("pending"); }
Broken conv_weight_grad(const Checked& c) { return c.broken("pending"); }
Broken conv_transpose(const Checked& c) { return c.broken("pending"); }
Broken pool(const Checked& c) { return c.broken("pending"); }
Broken max_pool_grad(const Checked& c) { return c.broken("pending"); }
Broken avg_pool_grad(const Checked& c) { return c.broken("pending"); }
Broken global_pool(const Checked& c) { return c.broken("pending"); }
Broken upsample(const Checked& c) { return c.broken("pending"); }
Broken upsample_grad(const Checked& c) { return c.broken("pending"); }
Broken lstm_cell(const Checked& c) { return c.broken("pending"); }
Broken lstm_cell_grad(const Checked& c) { return c.broken("pending"); }
Broken gru_cell(const Checked& c) { return c.broken("pending"); }
Broken gru_cell_grad(const Checked& c) { return c.broken("pending"); }
}
