// What a parameter server pays for one variable that is updated, published and sent ahead to its readers. Prints a table;
// fails if the publication takes 10 microseconds or more, or grows with the number of readers.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <limits>
#include <string>
#include <vector>

#include "cc/barrier/sent_ahead.h"
#include "cc/barrier/sent_ahead_testing.h"

namespace tfsched {
namespace {

constexpr int kVariables = 500;
constexpr int kPublications = 50000;
constexpr int kRuns = 5;
constexpr double kGrowth = 4;  // 32 readers fit less well into the processor's caches; a scan would cost 32 times as much

struct Cost {
  double publication_us = 0;
  double reader_us = 0;  // Began, SentInChunks and Match of one reader
};

double Us(std::clock_t ticks, int count) { return 1e6 * static_cast<double>(ticks) / CLOCKS_PER_SEC / count; }

Cost OneRun(int readers) {
  MemoryBudget budget(std::numeric_limits<int64_t>::max() / 2);
  SentAhead sent(&budget);
  std::vector<TestVariable> variables(kVariables);
  std::vector<std::string> clients;
  for (int reader = 0; reader < readers; ++reader) clients.push_back("program@/job:worker/task:" + std::to_string(reader));
  std::vector<std::vector<std::string>> keys(kVariables);
  for (int variable = 0; variable < kVariables; ++variable) {
    for (const std::string& client : clients) {
      keys[static_cast<size_t>(variable)].push_back("layer" + std::to_string(variable) + "/ReadVariableOp" + client);
    }
  }
  // Every reader has something of every variable.
  SentAhead::Freed freed;
  for (size_t v = 0; v < variables.size(); ++v) {
    for (size_t r = 0; r < clients.size(); ++r) {
      sent.Sent(keys[v][r], clients[r], 1, &variables[v], variables[v].Hold(), &freed);
    }
  }
  Cost cost;
  const std::clock_t begin = std::clock();
  for (int i = 0; i < kPublications; ++i) {
    freed.clear();
    variables[static_cast<size_t>(i) % kVariables].Publish(&sent, clients[static_cast<size_t>(i) % clients.size()], &freed);
  }
  cost.publication_us = Us(std::clock() - begin, kPublications);
  const std::clock_t middle = std::clock();
  for (int i = 0; i < kPublications; ++i) {
    const size_t v = static_cast<size_t>(i) % kVariables, r = static_cast<size_t>(i / kVariables) % clients.size();
    freed.clear();
    sent.Match(keys[v][r], clients[r], i, &variables[v], variables[v].id(), true, &freed);
    sent.Began(keys[v][r], &variables[v], variables[v].Hold(), &freed);
    sent.SentInChunks(keys[v][r], clients[r], i + 1, true, 0);
  }
  cost.reader_us = Us(std::clock() - middle, kPublications);
  return cost;
}

int Main() {
  std::printf("%d variables\n| readers | publication us | its reader us |\n|---:|---:|---:|\n", kVariables);
  bool quick = true;
  double of_one_us = 0;
  for (const int readers : {1, 8, 32}) {
    Cost best{1e9, 1e9};
    for (int run = 0; run < kRuns; ++run) {
      const Cost cost = OneRun(readers);
      best = {std::min(best.publication_us, cost.publication_us), std::min(best.reader_us, cost.reader_us)};
    }
    std::printf("| %d | %.3f | %.3f |\n", readers, best.publication_us, best.reader_us);
    if (readers == 1) of_one_us = best.publication_us;
    quick = quick && best.publication_us < 10 && best.publication_us < kGrowth * of_one_us;
  }
  return quick ? 0 : 1;
}

}  // namespace
}  // namespace tfsched

int main() { return tfsched::Main(); }
