// Arithmetic of an all-reduce; see elements.h.
#include "cc/collective/elements.h"

#include <cstring>
#include <type_traits>

// Loops over elements are all that this file does.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
// An output that is an input is the same element of it: no turn needs what another one has written.
#define TFSCHED_TURNS_ARE_APART _Pragma("GCC ivdep")
#else
#define TFSCHED_TURNS_ARE_APART
#endif

namespace tfsched {
namespace {

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// How a stored element is computed with: as itself, or as a float.
template <typename T>
struct Plain {
  using Stored = T;
  using Value = T;
  static Value Load(Stored stored) { return stored; }
  static Stored Store(Value value) { return value; }
};

struct Half {
  using Stored = uint16_t;
  using Value = float;
  static Value Load(Stored stored) { return HalfToFloat(stored); }
  static Stored Store(Value value) { return FloatToHalf(value); }
};

struct Bfloat16 {
  using Stored = uint16_t;
  using Value = float;
  static Value Load(Stored stored) { return Bfloat16ToFloat(stored); }
  static Stored Store(Value value) { return FloatToBfloat16(value); }
};

// Integers overflow as TensorFlow's do, by wrapping around.
template <typename T, typename Compute>
T Wrapping(T a, T b, Compute compute) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(compute(static_cast<Unsigned>(a), static_cast<Unsigned>(b)));
  } else {
    return compute(a, b);
  }
}

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return Wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Mul {
  template <typename T>
  T operator()(T a, T b) const {
    return Wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a != a || a > b ? a : b;  // a that is no number wins here, and so does b where nothing is greater
  }
};
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return a != a || a < b ? a : b;
  }
};

template <typename Type, typename Operator>
void Combine(const std::vector<const void*>& parts, int divisor, int64_t elements, void* output) {
  using Stored = typename Type::Stored;
  using Value = typename Type::Value;
  auto* out = static_cast<Stored*>(output);
  const auto* first = static_cast<const Stored*>(parts[0]);
  if (parts.size() == 1 && out != first) std::memcpy(out, first, elements * sizeof(Stored));
  for (size_t number = 1; number < parts.size(); ++number) {
    const auto* next = static_cast<const Stored*>(parts[number]);
    TFSCHED_TURNS_ARE_APART
    for (int64_t i = 0; i < elements; ++i) out[i] = Type::Store(Operator()(Type::Load(first[i]), Type::Load(next[i])));
    first = out;
  }
  if (divisor <= 0) return;
  const auto by = static_cast<Value>(divisor);
  TFSCHED_TURNS_ARE_APART
  for (int64_t i = 0; i < elements; ++i) out[i] = Type::Store(Type::Load(out[i]) / by);
}

template <typename Type>
void CombineBy(Reduction reduction, const std::vector<const void*>& parts, int divisor, int64_t elements, void* output) {
  switch (reduction) {
    case Reduction::kAdd:
      return Combine<Type, Add>(parts, divisor, elements, output);
    case Reduction::kMax:
      return Combine<Type, Max>(parts, divisor, elements, output);
    case Reduction::kMin:
      return Combine<Type, Min>(parts, divisor, elements, output);
    case Reduction::kMul:
      return Combine<Type, Mul>(parts, divisor, elements, output);
  }
}

}  // namespace

int64_t SizeOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat16:
    case ElementType::kBfloat16:
      return 2;
    case ElementType::kFloat32:
    case ElementType::kInt32:
      return 4;
    case ElementType::kFloat64:
    case ElementType::kInt64:
      return 8;
  }
  return 0;
}

void Reduce(ElementType type, Reduction reduction, const std::vector<const void*>& parts, int divisor, int64_t elements,
            void* output) {
  if (parts.empty() || elements <= 0) return;
  switch (type) {
    case ElementType::kFloat16:
      return CombineBy<Half>(reduction, parts, divisor, elements, output);
    case ElementType::kBfloat16:
      return CombineBy<Bfloat16>(reduction, parts, divisor, elements, output);
    case ElementType::kFloat32:
      return CombineBy<Plain<float>>(reduction, parts, divisor, elements, output);
    case ElementType::kFloat64:
      return CombineBy<Plain<double>>(reduction, parts, divisor, elements, output);
    case ElementType::kInt32:
      return CombineBy<Plain<int32_t>>(reduction, parts, divisor, elements, output);
    case ElementType::kInt64:
      return CombineBy<Plain<int64_t>>(reduction, parts, divisor, elements, output);
  }
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t fraction = bits & 0x3ff;
  if (exponent == 0x1f) return FloatOf(sign | 0x7f800000 | fraction << 13);
  if (exponent != 0) return FloatOf(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * FloatOf(0x33800000);  // fraction * 2^-24, exactly
  return FloatOf(sign | BitsOf(magnitude));
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = BitsOf(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);   // no number
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // rounds to more than 65504
  if (magnitude < 0x38800000) {
    // Below 2^-14 halves are multiples of 2^-24. Beside 0.5 floats are multiples of that, too: so the sum is rounded to one,
    // by the rules of floats, which are the same.
    return static_cast<uint16_t>(sign | (BitsOf(FloatOf(magnitude) + 0.5F) - BitsOf(0.5F)));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

float Bfloat16ToFloat(uint16_t bits) { return FloatOf(static_cast<uint32_t>(bits) << 16); }

uint16_t FloatToBfloat16(float value) {
  const uint32_t bits = BitsOf(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(((bits >> 16) & 0x8000) | 0x7fc0);  // no number
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace tfsched
