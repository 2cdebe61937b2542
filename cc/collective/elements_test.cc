// Elements: conversions against known values and against every other way round, combinations against arithmetic.
#include "cc/collective/elements.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tfsched {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
std::vector<T> Reduced(ElementType type, Reduction reduction, const std::vector<std::vector<T>>& parts, int divisor = 0) {
  std::vector<const void*> data;
  for (const auto& part : parts) data.push_back(part.data());
  std::vector<T> output(parts[0].size());
  Reduce(type, reduction, data, divisor, static_cast<int64_t>(output.size()), output.data());
  return output;
}

TEST(ElementsTest, HalvesHaveTheirKnownValues) {
  EXPECT_EQ(HalfToFloat(0x3c00), 1.0F);
  EXPECT_EQ(HalfToFloat(0xc000), -2.0F);
  EXPECT_EQ(HalfToFloat(0x7bff), 65504.0F);
  EXPECT_EQ(HalfToFloat(0x0400), std::ldexp(1.0F, -14));  // the least normal one
  EXPECT_EQ(HalfToFloat(0x0001), std::ldexp(1.0F, -24));  // the least of all
  EXPECT_EQ(HalfToFloat(0x83ff), -std::ldexp(1023.0F, -24));
  EXPECT_EQ(HalfToFloat(0x7c00), kInfinity);
  EXPECT_TRUE(std::isnan(HalfToFloat(0x7e00)));
  EXPECT_TRUE(std::signbit(HalfToFloat(0x8000)));
  EXPECT_EQ(FloatToHalf(1.0F), 0x3c00);
  EXPECT_EQ(FloatToHalf(-0.0F), 0x8000);
  EXPECT_EQ(FloatToHalf(0.333251953125F), 0x3555);
  EXPECT_EQ(FloatToHalf(65519.0F), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0F), 0x7c00);  // half way to the next, which does not exist
  EXPECT_EQ(FloatToHalf(1e30F), 0x7c00);
  EXPECT_EQ(FloatToHalf(-kInfinity), 0xfc00);
  EXPECT_EQ(FloatToHalf(std::ldexp(1.0F, -25)), 0x0000);  // half way between 0 and the least: to even
  EXPECT_EQ(FloatToHalf(std::ldexp(1.5F, -25)), 0x0001);
  EXPECT_EQ(FloatToHalf(std::ldexp(1023.5F, -24)), 0x0400);  // from the subnormal ones into the normal ones
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(std::nanf("")))));
}

TEST(ElementsTest, HalvesRoundToTheNearestAndHalvesToEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = HalfToFloat(static_cast<uint16_t>(bits)), high = HalfToFloat(static_cast<uint16_t>(bits + 1));
    EXPECT_EQ(FloatToHalf(low), bits);
    EXPECT_EQ(FloatToHalf(-low), bits | 0x8000);
    const float middle = low + (high - low) / 2;
    EXPECT_EQ(FloatToHalf(middle), bits + (bits & 1)) << bits;
    EXPECT_EQ(FloatToHalf(std::nextafter(middle, low)), bits) << bits;
    EXPECT_EQ(FloatToHalf(std::nextafter(middle, high)), bits + 1) << bits;
  }
}

TEST(ElementsTest, Bfloat16RoundsToTheNearestAndHalvesToEven) {
  EXPECT_EQ(FloatToBfloat16(1.0F), 0x3f80);
  EXPECT_EQ(FloatToBfloat16(3.14159265F), 0x4049);
  EXPECT_EQ(FloatToBfloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(Bfloat16ToFloat(FloatToBfloat16(std::nanf("")))));
  for (uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const float low = Bfloat16ToFloat(static_cast<uint16_t>(bits)), high = Bfloat16ToFloat(static_cast<uint16_t>(bits + 1));
    EXPECT_EQ(FloatToBfloat16(low), bits);
    const float middle = low + (high - low) / 2;
    EXPECT_EQ(FloatToBfloat16(middle), bits + (bits & 1)) << bits;
    EXPECT_EQ(FloatToBfloat16(std::nextafter(middle, high)), bits + 1) << bits;
  }
}

TEST(ElementsTest, EveryReductionOfEveryType) {
  using F = std::vector<std::vector<float>>;
  const F floats = {{1.5F, -2.0F}, {2.0F, 8.0F}, {-4.0F, 0.5F}};
  EXPECT_EQ(Reduced(ElementType::kFloat32, Reduction::kAdd, floats), (std::vector<float>{-0.5F, 6.5F}));
  EXPECT_EQ(Reduced(ElementType::kFloat32, Reduction::kMul, floats), (std::vector<float>{-12.0F, -8.0F}));
  EXPECT_EQ(Reduced(ElementType::kFloat32, Reduction::kMax, floats), (std::vector<float>{2.0F, 8.0F}));
  EXPECT_EQ(Reduced(ElementType::kFloat32, Reduction::kMin, floats), (std::vector<float>{-4.0F, -2.0F}));
  EXPECT_EQ(Reduced(ElementType::kFloat32, Reduction::kAdd, floats, 2), (std::vector<float>{-0.25F, 3.25F}));
  const std::vector<std::vector<double>> doubles = {{1e300}, {1.0}, {-1e300}};
  EXPECT_EQ(Reduced(ElementType::kFloat64, Reduction::kAdd, doubles), std::vector<double>{0.0});  // from left to right
  const std::vector<std::vector<int32_t>> ints = {{7, std::numeric_limits<int32_t>::max()}, {-20, 1}};
  EXPECT_EQ(Reduced(ElementType::kInt32, Reduction::kAdd, ints),
            (std::vector<int32_t>{-13, std::numeric_limits<int32_t>::min()}));
  EXPECT_EQ(Reduced<int32_t>(ElementType::kInt32, Reduction::kAdd, {{7}, {-20}}, 2), std::vector<int32_t>{-6});
  const std::vector<std::vector<int64_t>> longs = {{int64_t{1} << 40}, {int64_t{3}}};
  EXPECT_EQ(Reduced(ElementType::kInt64, Reduction::kMul, longs), std::vector<int64_t>{int64_t{3} << 40});
  EXPECT_EQ(Reduced(ElementType::kInt64, Reduction::kMax, longs), std::vector<int64_t>{int64_t{1} << 40});
}

TEST(ElementsTest, SixteenBitsAreRoundedAfterEachStep) {
  const auto half = [](float value) { return std::vector<uint16_t>{FloatToHalf(value)}; };
  // 2048 + 1 is 2048 among halves, twice; 2048 + 2 would be 2050.
  EXPECT_EQ(Reduced<uint16_t>(ElementType::kFloat16, Reduction::kAdd, {half(2048), half(1), half(1)}), half(2048));
  const auto brain = [](float value) { return std::vector<uint16_t>{FloatToBfloat16(value)}; };
  EXPECT_EQ(Reduced<uint16_t>(ElementType::kBfloat16, Reduction::kAdd, {brain(256), brain(1), brain(1)}), brain(256));
  EXPECT_EQ(Reduced<uint16_t>(ElementType::kBfloat16, Reduction::kAdd, {brain(1), brain(2)}, 2), brain(1.5F));
}

TEST(ElementsTest, WhatIsNoNumberStaysNone) {
  const float none = std::nanf("");
  for (const Reduction reduction : {Reduction::kAdd, Reduction::kMax, Reduction::kMin, Reduction::kMul}) {
    EXPECT_TRUE(std::isnan(Reduced<float>(ElementType::kFloat32, reduction, {{none}, {1}})[0]));
    EXPECT_TRUE(std::isnan(Reduced<float>(ElementType::kFloat32, reduction, {{1}, {none}})[0]));
  }
}

}  // namespace
}  // namespace tfsched
