// PieceUpdate and the table of all of them.
#include "cc/transport/piece_updates.h"

#include <algorithm>
#include <utility>

#include "cc/transport/read_ahead.h"
#include "tensorflow/core/common_runtime/dma_helper.h"

namespace tfsched {
namespace {

constexpr size_t kEndedKept = 256;

}  // namespace

bool PieceUpdate::Publish(const std::string& client) {
  std::vector<tensorflow::Tensor> old;  // freed without the locks
  std::vector<tensorflow::Var*> ordered;
  for (const auto& variable : variables) ordered.push_back(variable.get());
  std::sort(ordered.begin(), ordered.end());
  ordered.erase(std::unique(ordered.begin(), ordered.end()), ordered.end());
  if (ordered.size() != variables.size()) return false;
  for (tensorflow::Var* variable : ordered) variable->mu()->lock();
  bool unchanged = true;
  for (size_t i = 0; i < variables.size(); ++i) {
    // `before` keeps the buffer, so a writer has had to take another one: the same buffer is the same value.
    unchanged = unchanged && !variables[i]->copy_on_read_mode.load() &&
                tensorflow::DMAHelper::buffer(variables[i]->tensor()) == tensorflow::DMAHelper::buffer(&before[i]);
  }
  for (size_t i = 0; unchanged && i < variables.size(); ++i) {
    old.push_back(std::exchange(*variables[i]->tensor(), after[i]));
    ProcessSentAhead().Replaced(client, before[i], after[i], &old);
  }
  for (tensorflow::Var* variable : ordered) variable->mu()->unlock();
  return unchanged;
}

bool PieceUpdates::Ended(int64_t token) const { return std::find(ended_.begin(), ended_.end(), token) != ended_.end(); }

std::shared_ptr<PieceUpdate> PieceUpdates::Get(int64_t token, const std::string& name) {
  std::lock_guard<std::mutex> lock(mu_);
  if (Ended(token)) return std::make_shared<PieceUpdate>();  // a chunk that is late: nobody will ask for it
  std::shared_ptr<PieceUpdate>& update = updates_[{token, name}];
  if (update == nullptr) update = std::make_shared<PieceUpdate>();
  return update;
}

std::shared_ptr<PieceUpdate> PieceUpdates::Take(int64_t token, const std::string& name) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = updates_.find({token, name});
  if (found == updates_.end()) return nullptr;
  std::shared_ptr<PieceUpdate> update = std::move(found->second);
  updates_.erase(found);
  return update;
}

void PieceUpdates::EndToken(int64_t token) {
  std::vector<std::shared_ptr<PieceUpdate>> dropped;  // without the lock
  std::lock_guard<std::mutex> lock(mu_);
  ended_.push_back(token);
  if (ended_.size() > kEndedKept) ended_.pop_front();
  auto it = updates_.lower_bound({token, ""});
  while (it != updates_.end() && it->first.first == token) {
    dropped.push_back(std::move(it->second));
    it = updates_.erase(it);
  }
}

void PieceUpdates::Count(bool from_chunks) {
  std::lock_guard<std::mutex> lock(mu_);
  ++(from_chunks ? counters_.from_chunks : counters_.whole);
}

PieceUpdates::Counters PieceUpdates::counters() const {
  std::lock_guard<std::mutex> lock(mu_);
  Counters counters = counters_;
  counters.under_way = static_cast<int64_t>(updates_.size());
  return counters;
}

PieceUpdates& ProcessPieceUpdates() {
  static auto* updates = new PieceUpdates;
  return *updates;
}

}  // namespace tfsched
