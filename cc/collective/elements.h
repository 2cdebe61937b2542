// Arithmetic of an all-reduce: what its elements are and how they are combined.
#ifndef TFSCHED_CC_COLLECTIVE_ELEMENTS_H_
#define TFSCHED_CC_COLLECTIVE_ELEMENTS_H_

#include <cstdint>
#include <vector>

namespace tfsched {

enum class ElementType { kFloat16, kBfloat16, kFloat32, kFloat64, kInt32, kInt64 };
enum class Reduction { kAdd, kMax, kMin, kMul };

int64_t SizeOf(ElementType type);

// output[i] = parts[0][i] . parts[1][i] . ..., from left to right, each result rounded to the type: whoever has the parts in
// the same order gets the same bits. With `divisor` > 0 that is divided by it in the end (integers towards zero). What is no
// number stays none. `output` may be the memory of one of the first two parts.
void Reduce(ElementType type, Reduction reduction, const std::vector<const void*>& parts, int divisor, int64_t elements,
            void* output);

// The two types of 16 bits, as IEEE 754 has them: widening is exact, narrowing rounds to the nearest, halves to even.
float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
float Bfloat16ToFloat(uint16_t bits);
uint16_t FloatToBfloat16(float value);

}  // namespace tfsched

#endif  // TFSCHED_CC_COLLECTIVE_ELEMENTS_H_
