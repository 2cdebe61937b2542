// What has been sent ahead of the next step: what the sender remembers of it, and where the receiver keeps it.
#ifndef TFSCHED_CC_TRANSPORT_READ_AHEAD_H_
#define TFSCHED_CC_TRANSPORT_READ_AHEAD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "tensorflow/core/framework/tensor.h"

namespace tfsched {

// The sender's side, on the parameter server. A value that was sent is held until the next step asks for it: a write in
// between then has to go to a buffer of its own (TensorFlow writes in place only where nobody else holds the buffer), so
// "still the same buffer" means "still the same value". Thread safe.
class SentAhead {
 public:
  // Whether sending is worth it: after values that had changed before they were asked for, it pauses for a while.
  bool Worthwhile(const std::string& key);
  void Sent(const std::string& key, const std::string& client, int64_t token, const tensorflow::Tensor& value);
  // The receiver has it. Nothing happens where another token's value, or none, was sent.
  void Arrived(const std::string& key, int64_t token);
  // The token whose value, which the receiver has, is `current`; 0 if there is none. Forgets what was sent.
  int64_t Match(const std::string& key, const std::string& client, const tensorflow::Tensor& current);
  // Nobody asks for the key any more.
  void Forget(const std::string& key);

  struct Counters {
    int64_t sent = 0;    // values sent ahead
    int64_t used = 0;    // and asked for unchanged
    int64_t missed = 0;  // and changed before they were asked for
  };
  Counters counters() const;

 private:
  struct Entry {
    std::string client;
    int64_t token = 0;  // 0: nothing is held
    bool arrived = false;
    tensorflow::Tensor value;
    int misses = 0;  // in a row
    int pause = 0;   // times that are still to be left out
  };
  mutable std::mutex mu_;
  std::map<std::string, Entry> entries_;
  Counters counters_;
};

// The receiver's side. A value is kept for as long as some graph of the client may ask for it. Thread safe.
class Stock {
 public:
  using Key = std::pair<std::string, std::string>;  // client, key

  void AddReader(const Key& key);
  void RemoveReader(const Key& key);
  // Keeps the value and the one before it, for which another step's marker may be on its way; drops it if nobody may ask.
  void Put(const Key& key, int64_t token, const tensorflow::Tensor& value);
  // Takes the value that `token` has sent; false if it is not here.
  bool Take(const Key& key, int64_t token, tensorflow::Tensor* value);

 private:
  struct Entry {
    int readers = 0;
    std::deque<std::pair<int64_t, tensorflow::Tensor>> values;  // token and value, the newest last
  };
  std::mutex mu_;
  std::map<Key, Entry> entries_;
};

// Created at first use, never destroyed.
SentAhead& ProcessSentAhead();
Stock& ProcessStock();

// A marker stands for "you have it, from this token": no elements, and the token for a dimension.
tensorflow::TensorShape MarkerShape(int64_t token);
// The marker's token; 0 if the tensor is none.
int64_t TokenOfMarker(const tensorflow::Tensor& value);

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_READ_AHEAD_H_
