// Lists of variables' handles under numbers, so that the background function, a function of numbers, can be told which
// variables it updates.
#ifndef TFSCHED_CC_TRANSPORT_HANDLE_TABLE_H_
#define TFSCHED_CC_TRANSPORT_HANDLE_TABLE_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/tensor.h"

namespace tfsched {

// What all graphs and tasks of a cluster call a variable by, in the process that has it.
std::string KeyOf(const tensorflow::ResourceHandle& handle);

// A step on a parameter server leaves its variables' handles here, and its background function takes them. Equal lists share
// a number, so the table is as large as there are kinds of training steps. Thread safe.
class HandleTable {
 public:
  HandleTable();

  // The number of this list: random and positive, for a server that was restarted must not know its predecessor's.
  int64_t Intern(const std::vector<tensorflow::Tensor>& handles);

  // False if the number is not known.
  bool Find(int64_t id, std::vector<tensorflow::Tensor>* handles) const;

  // Some handles own their variables. Lists of those are forgotten when no step has named them for this long, which a
  // background function never lags behind its step: variables that the user has dropped must not live for ever.
  static constexpr int64_t kKeptUs = 600'000'000;

 private:
  struct Entry {
    int64_t id = 0;
    std::vector<tensorflow::Tensor> handles;
    bool owning = false;
    int64_t used_us = 0;
  };
  void ForgetOld();
  bool ArmLocked() TFSCHED_REQUIRES(mu_);

  mutable Mutex mu_;
  std::mt19937_64 random_ TFSCHED_GUARDED_BY(mu_);
  std::map<std::string, Entry> entries_ TFSCHED_GUARDED_BY(mu_);  // by the handles' keys
  std::unordered_map<int64_t, const Entry*> by_id_ TFSCHED_GUARDED_BY(mu_);
  bool armed_ TFSCHED_GUARDED_BY(mu_) = false;  // ForgetOld is going to be called
};

// Created at first use, never destroyed.
HandleTable& ProcessHandleTable();

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_HANDLE_TABLE_H_
