// Updates that are made chunk by chunk, as their gradients arrive: what is between the first chunk and the last.
#ifndef TFSCHED_CC_TRANSPORT_PIECE_UPDATES_H_
#define TFSCHED_CC_TRANSPORT_PIECE_UPDATES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/refcount.h"

namespace tfsched {

// One update of one f. The new values are made in buffers of their own and become the variables' in one go, so that nobody
// sees a variable that is half updated.
struct PieceUpdate {
  std::mutex mu;  // guards what follows, but not what the buffers hold: each chunk has its part of them to itself
  bool prepared = false;
  bool whole = false;                         // not to be made by chunks, known before the first one
  bool broken = false;                        // a chunk could not be done
  std::vector<tensorflow::Tensor> gradients;  // by chunk
  std::vector<bool> ahead;                    // by reader: whether the new value is sent to it
  // By variable: the optimizer's first and then its slots.
  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables;
  std::vector<tensorflow::Tensor> before;
  std::vector<tensorflow::Tensor> after;

  // Makes the new values the variables', all at once, in the client's name. False, and nothing done, if somebody has written
  // to one of them since.
  bool Publish(const std::string& client);
};

// All that are under way in this process. Thread safe.
class PieceUpdates {
 public:
  // The update of this name of the f with this token; a new one for its first chunk.
  std::shared_ptr<PieceUpdate> Get(int64_t token, const std::string& name);
  // The same, for the last time.
  std::shared_ptr<PieceUpdate> Take(int64_t token, const std::string& name);
  // The f is over in this process: what it has not finished is dropped.
  void EndToken(int64_t token);
  // One is over: its chunks have become the variables' values, or it was run as a whole all the same.
  void Count(bool from_chunks);

  struct Counters {
    int64_t from_chunks = 0;
    int64_t whole = 0;
    int64_t under_way = 0;
  };
  Counters counters() const;

 private:
  bool Ended(int64_t token) const;
  mutable std::mutex mu_;
  std::map<std::pair<int64_t, std::string>, std::shared_ptr<PieceUpdate>> updates_;
  std::deque<int64_t> ended_;  // the last tokens whose f is over
  Counters counters_;
};

// Created at first use, never destroyed.
PieceUpdates& ProcessPieceUpdates();

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_PIECE_UPDATES_H_
