// Constant expressions by recursive descent, and the small things made of them: shapes, dtypes, suggestions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assembler/context.h"
#include "opcodes/limits.h"

namespace tape::text {
namespace {

class Expression {
 public:
  Expression(Scan& scan, const Context& context) : scan_(scan), context_(context) {}

  Value sum() {
    const char* const start = from();
    Value left = product();
    for (char op = scan_.peek(); op == '+' || op == '-'; op = scan_.peek()) {
      scan_.accept(op);
      left = apply(op, left, product(), start);
    }
    return left;
  }

  Value operand(std::string_view* literal, bool* negative) {
    if (scan_.peek() == '(') return parenthesised();
    return signed_literal(literal, negative);
  }

 private:
  const char* from() {
    scan_.skip();
    return scan_.position();
  }

  Value product() {
    const char* const start = from();
    Value left = factor();
    for (char op = scan_.peek(); op == '*' || op == '/' || op == '%'; op = scan_.peek()) {
      scan_.accept(op);
      left = apply(op, left, factor(), start);
    }
    return left;
  }

  Value factor() {
    if (scan_.peek() == '(') return parenthesised();
    const char* const start = from();
    if (scan_.accept('+')) return factor_in(start);
    if (scan_.accept('-')) {
      if (is_class(scan_.peek(), kDigit) || scan_.peek() == '.') return literal(true, nullptr);
      return apply('-', Value::of(int64_t{0}), factor_in(start), start, true);
    }
    return signed_literal(nullptr, nullptr);
  }

  Value factor_in(const char* start) {
    const Deeper deeper(*this, start);
    return factor();
  }

  Value parenthesised() {
    const char* const start = from();
    const Deeper deeper(*this, start);
    scan_.accept('(');
    const Value value = sum();
    scan_.expect(')', "after the expression");
    return value;
  }

  Value signed_literal(std::string_view* token, bool* negative) {
    const bool minus = scan_.peek() == '-';
    if (minus || scan_.peek() == '+') {
      scan_.accept(scan_.peek());
      const char* const after = scan_.position();
      if (scan_.here().data() != after) scan_.fail("a sign stands right before its number");
    }
    if (negative != nullptr) *negative = minus;
    if (!scan_.at_name()) return literal(minus, token);
    const Value value = named();
    return minus ? apply('-', Value::of(int64_t{0}), value, scan_.position(), true) : value;
  }

  Value literal(bool negative, std::string_view* token) {
    if (!is_class(scan_.peek(), kDigit) && scan_.peek() != '.') {
      const std::string_view found = scan_.here();
      scan_.fail(found.empty() ? "expected a number" : fmt::format("expected a number, found {}", found));
    }
    const std::string_view text = scan_.number_token();
    Value value;
    if (auto wrong = parse_literal(text, negative, value)) throw Mistake{text, *wrong, {}};
    if (token != nullptr) *token = text;
    return value;
  }

  Value named() {
    const Name name = scan_.name();
    if (name.text == "inf" || name.text == "nan") {
      Value value;
      (void)parse_literal(name.text, false, value);
      return value;
    }
    if (name.text == "min" || name.text == "max") return extreme(name);
    const Symbol* const symbol = context_.find(name);
    if (symbol != nullptr && symbol->kind == SymbolKind::Constant) {
      if (symbol->index < context_.visible) return context_.constants[symbol->index];
      throw Mistake{name.text, fmt::format("the constant {} is used before its line", name.text), {}};
    }
    throw wrong_name(context_, name, "a constant", "", [](SymbolKind kind) { return kind == SymbolKind::Constant; });
  }

  Value extreme(const Name& name) {
    const Deeper deeper(*this, name.text.data());
    scan_.expect('(', fmt::format("after {}", name.text));
    Value best = sum();
    while (scan_.accept(',')) {
      const Value next = sum();
      const int order = compare(next, best);
      if (order == 2 ? std::isnan(next.as_double()) : name.text == "min" ? order < 0 : order > 0) best = next;
    }
    scan_.expect(')', fmt::format("after the arguments of {}", name.text));
    return best;
  }

  Value apply(char op, const Value& a, const Value& b, const char* start, bool negation = false) {
    if (negation && b.is_float) return Value::of(-b.f);
    const auto result = arithmetic(op, a, b);
    if (result) return *result;
    const bool by_zero = (op == '/' || op == '%') && b.i == 0;
    throw Mistake{scan_.since(start), by_zero ? "integer division by 0" : "the result does not fit 64 bits", {}};
  }

  struct Deeper {
    Deeper(Expression& expression, const char* start) : depth(expression.depth_) {
      if (++depth > limits::max_expansion_depth)
        throw Mistake{expression.scan_.since(start),
                      fmt::format("nested deeper than {} (max_expansion_depth)", limits::max_expansion_depth),
                      {}};
    }
    ~Deeper() { --depth; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    int64_t& depth;
  };

  Scan& scan_;
  const Context& context_;
  int64_t depth_ = 0;
};

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates) {
  const std::string found = nearest(word, candidates);
  return found.empty() ? std::string() : fmt::format("; did you mean {}?", found);
}

Mistake wrong_name(const Context& context, const Name& name, std::string_view wanted, std::string_view prefix,
                   bool (*kinds)(SymbolKind)) {
  const Symbol* const symbol = context.find(name);
  if (symbol != nullptr && symbol->kind == SymbolKind::Poison) return {name.text, {}, {}};
  if (symbol != nullptr)
    return {name.text, fmt::format("{}{} is {}, wanted {}", prefix, name.text, noun_of(symbol->kind), wanted), {}};
  std::vector<std::string_view> candidates;
  context.privates.collect(candidates, kinds);
  context.globals.collect(candidates, kinds);
  const std::string_view noun = wanted.substr(wanted.find(' ') + 1);
  return {name.text,
          fmt::format("{}no {} is named {}{}", prefix, noun, name.text, did_you_mean(name.text, candidates)),
          {}};
}

Value expression(Scan& scan, const Context& context) {
  return Expression(scan, context).sum();
}

int64_t integer(Scan& scan, const Context& context, std::string_view what) {
  scan.skip();
  const char* const start = scan.position();
  const Value value = expression(scan, context);
  if (value.is_float)
    throw Mistake{scan.since(start), fmt::format("{} wants an integer, got {}", what, value.text()), {}};
  return value.i;
}

double number(Scan& scan, const Context& context) {
  return expression(scan, context).as_double();
}

Value element(Scan& scan, const Context& context, std::string_view& literal, bool& negative) {
  literal = {};
  negative = false;
  return Expression(scan, context).operand(&literal, &negative);
}

Shape shape_of(Scan& scan, const Context& context, bool star) {
  scan.skip();
  const char* const start = scan.position();
  scan.expect('[', "before the dimensions");
  Shape shape;
  if (star) {
    scan.expect('*', "as the first dimension: the rows");
    if (scan.peek() != ']') scan.expect(',', "between dimensions");
  }
  while (scan.peek() != ']') {
    if (shape.rank() == limits::max_rank)
      scan.fail(fmt::format("more than {} dimensions (max_rank)", limits::max_rank));
    const char* const from = scan.position();
    const int64_t dim = integer(scan, context, "a dimension");
    if (dim < 0) throw Mistake{scan.since(from), fmt::format("the dimension {} is negative", dim), {}};
    shape.push_back(dim);
    if (!scan.accept(',')) break;
  }
  scan.expect(']', "after the dimensions");
  if (!shape.checked_elements())
    throw Mistake{scan.since(start),
                  fmt::format("{} has more than {} elements (max_elements)", shape.text(), limits::max_elements),
                  {}};
  return shape;
}

DType dtype_of(Scan& scan) {
  if (!scan.at_name())
    scan.fail(fmt::format("expected a dtype{}{}", scan.here().empty() ? "" : ", found ", scan.here()));
  const Name name = scan.name();
  if (const DTypeInfo* info = find_dtype(name.text)) return info->dtype;
  std::vector<std::string_view> names;
  for (const DTypeInfo& info : kDTypes) names.push_back(info.name);
  throw Mistake{name.text, fmt::format("no dtype is named {}{}", name.text, did_you_mean(name.text, names)), {}};
}

}  // namespace tape::text
