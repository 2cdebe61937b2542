// Random numbers that are the same with every standard library.
#ifndef TFSCHED_CC_SIMULATOR_RANDOM_H_
#define TFSCHED_CC_SIMULATOR_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tfsched::simulator {

// splitmix64, and a shuffle, for std::shuffle is not the same everywhere. Not thread safe.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  void Shuffle(std::vector<int32_t>* values) {
    for (size_t i = values->size(); i > 1; --i) std::swap((*values)[i - 1], (*values)[Next() % i]);
  }

 private:
  uint64_t state_;
};

}  // namespace tfsched::simulator

#endif  // TFSCHED_CC_SIMULATOR_RANDOM_H_
