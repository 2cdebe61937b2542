// The bridge: hands Grappler's graph to the pass written in Python and takes the rewritten one back.
#include "cc/grappler/bridge.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cc/core/log_level.h"
#include "cc/tracing/op_recording.h"
#include "cc/transport/all_reduce.h"
#include "cc/transport/barrier.h"
#include "cc/transport/capability.h"
#include "cc/transport/link_probe.h"
#include "cc/transport/runtime.h"
#include "cc/transport/servers.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/common_runtime/local_device.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/grappler/clusters/cluster.h"
#include "tensorflow/core/grappler/grappler_item.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer_registry.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/logging.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"
#include "tensorflow/core/protobuf/rewriter_config.pb.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tfsched {
namespace {

std::atomic<tfsched_pass_fn> python_pass{nullptr};

// What the pass of this thread works on, for what it asks of it.
struct Place {
  const tensorflow::grappler::Cluster* cluster;
  const tensorflow::GraphDef* graph;
};
thread_local const Place* current = nullptr;

// The pass asks for a graph's links one after the other.
constexpr size_t kMostLinks = 8;

// The devices whose processes know tfsched's ops as this one does: its own, and those of the same build. `local`: of this
// process's servers only.
std::vector<std::string> CapableDevices(const tensorflow::grappler::Cluster* cluster, bool local) {
  std::vector<std::string> names;
  const tensorflow::DeviceSet* devices = cluster == nullptr ? nullptr : cluster->GetDeviceSet();
  if (devices == nullptr) return names;
  for (const tensorflow::Device* device : devices->devices()) {
    // In TensorFlow 2 a task's own devices may be listed as remote ones.
    const bool own = IsLocal(device->attributes());
    if (own ||
        (!local && (dynamic_cast<const tensorflow::LocalDevice*>(device) != nullptr || IsCapable(device->attributes())))) {
      names.push_back(device->name());
    }
  }
  return names;
}

// Whether the graph is a function's all of whose nodes are on one task: nothing crosses, and most functions are such.
bool StaysOnOneTask(const tensorflow::GraphDef& graph) {
  using tensorflow::DeviceNameUtils;
  bool function = false;
  const std::string* device = nullptr;
  DeviceNameUtils::ParsedName first, other;
  for (const auto& node : graph.node()) {
    if (node.op() == "CollectiveReduceV2") return false;  // crosses tasks without an edge
    function = function || node.op() == "_Arg" || node.op() == "_Retval";
    if (device == nullptr) {
      device = &node.device();
      if (!DeviceNameUtils::ParseFullName(*device, &first)) return false;
    } else if (node.device() != *device) {
      if (!DeviceNameUtils::ParseFullName(node.device(), &other) || !DeviceNameUtils::IsSameAddressSpace(first, other)) {
        return false;
      }
    }
  }
  return function;
}

// How fast bytes come to this process from those whom the graph has it talk to; see link_probe.h.
int64_t LinkBpsOf(const Place& place) {
  const tensorflow::DeviceSet* devices = place.cluster == nullptr ? nullptr : place.cluster->GetDeviceSet();
  if (devices == nullptr) return 0;
  std::set<std::string> used;
  for (const auto& node : place.graph->node()) {
    std::string task, unused;
    if (tensorflow::DeviceNameUtils::SplitDeviceName(node.device(), &task, &unused)) used.insert(task);
  }
  const tensorflow::DeviceAttributes* own = nullptr;
  std::map<std::string, const tensorflow::DeviceAttributes*> others;
  for (const tensorflow::Device* device : devices->devices()) {
    const tensorflow::DeviceAttributes& attributes = device->attributes();
    std::string task, unused;
    if (attributes.device_type() != "CPU" ||
        !tensorflow::DeviceNameUtils::SplitDeviceName(attributes.name(), &task, &unused)) {
      continue;
    }
    if (IsLocal(attributes)) {
      if (own == nullptr) own = &attributes;
    } else if (used.count(task) > 0 && others.size() < kMostLinks && IsCapable(attributes)) {
      others.emplace(task, &attributes);
    }
  }
  if (own == nullptr) return 0;
  std::vector<tensorflow::DeviceAttributes> ends;
  for (const auto& [task, attributes] : others) ends.push_back(*attributes);
  return LinkBps(*own, ends);
}

// Everything the pass needs, in one message that Python can read: the graph, and as collections what must not change, where
// proxies may stand and the parameters from the session's configuration.
tensorflow::MetaGraphDef RequestFor(const tensorflow::grappler::Cluster* cluster,
                                    const tensorflow::grappler::GrapplerItem& item,
                                    const tensorflow::RewriterConfig_CustomGraphOptimizer& config) {
  tensorflow::MetaGraphDef request;
  *request.mutable_graph_def() = item.graph;
  auto& collections = *request.mutable_collection_def();
  auto* fetch = collections["fetch"].mutable_node_list();
  for (const auto& name : item.fetch) fetch->add_value(name);
  auto* feed = collections["feed"].mutable_node_list();
  for (const auto& name_and_value : item.feed) feed->add_value(name_and_value.first);
  auto* keep = collections["keep"].mutable_node_list();
  for (const auto& name : item.NodesToPreserve()) keep->add_value(name);
  auto* capable = collections["capable"].mutable_node_list();
  for (const auto& name : CapableDevices(cluster, /*local=*/false)) capable->add_value(name);
  auto* local = collections["local"].mutable_node_list();
  for (const auto& name : CapableDevices(cluster, /*local=*/true)) local->add_value(name);
  collections["id"].mutable_node_list()->add_value(item.id);
  collections["parameters"].mutable_bytes_list()->add_value(config.SerializeAsString());
  return request;
}

class Pass : public tensorflow::grappler::CustomGraphOptimizer {
 public:
  absl::Status Init(const tensorflow::RewriterConfig_CustomGraphOptimizer* config) override {
    if (config != nullptr) config_ = *config;
    return absl::OkStatus();
  }

  std::string name() const override { return "tfsched"; }
  bool UsesFunctionLibrary() const override { return true; }

  // "Aborted" is how Grappler spells "nothing to do here": it keeps the graph and says nothing.
  absl::Status Optimize(tensorflow::grappler::Cluster* cluster, const tensorflow::grappler::GrapplerItem& item,
                        tensorflow::GraphDef* optimized) override {
    const tfsched_pass_fn pass = python_pass.load();
    if (pass == nullptr) return tensorflow::errors::Aborted("tfsched: no pass is installed in this process.");
    if (StaysOnOneTask(item.graph)) return tensorflow::errors::Aborted("tfsched: nothing crosses tasks.");
    std::string request;
    if (!RequestFor(cluster, item, config_).SerializeToString(&request)) {
      TFSCHED_WARNING << "the graph " << item.id << " is too large to be handed to the pass; it runs unordered.";
      return tensorflow::errors::Aborted("tfsched: the graph cannot be serialised.");
    }
    std::string result;
    const Place place{cluster, &item.graph};
    current = &place;
    const int changed = pass(request.data(), request.size(), &result);
    current = nullptr;
    VLOG(1) << "tfsched: pass on " << item.id << " (" << item.graph.node_size() << " nodes): " << changed;
    if (changed != 1) return tensorflow::errors::Aborted("tfsched: graph unchanged.");
    if (!optimized->ParseFromString(result)) {
      *optimized = item.graph;
      TFSCHED_WARNING << "the pass returned no graph for " << item.id << "; it runs unordered.";
    }
    return absl::OkStatus();
  }

 private:
  tensorflow::RewriterConfig_CustomGraphOptimizer config_;
};

REGISTER_GRAPH_OPTIMIZER_AS(Pass, "tfsched");

}  // namespace
}  // namespace tfsched

extern "C" {

void tfsched_set_pass(tfsched_pass_fn pass) { tfsched::python_pass.store(pass); }

void tfsched_put(void* sink, const char* data, size_t size) { static_cast<std::string*>(sink)->assign(data, size); }

int64_t tfsched_link_bps() {
  return tfsched::current == nullptr ? tfsched::LinkBps({}, {}) : tfsched::LinkBpsOf(*tfsched::current);
}

int64_t tfsched_pace_bps() { return tfsched::ProcessDispatcher().scheduler().SlowestPaceBps(); }

void tfsched_keep_graph(const char* key, const char* id, const char* data, size_t size) {
  tfsched::KeepGraph(key, id, std::string(data, size));
}

void tfsched_read(int what, tfsched_take_fn take, void* context) {
  const std::string json = what == 0 ? tfsched::StatsJson() : what == 1 ? tfsched::TraceJson() : tfsched::PoliciesJson();
  take(json.data(), json.size(), context);
}

int64_t tfsched_drain(int64_t timeout_ms) { return tfsched::ProcessCalls().WaitIdle(timeout_ms * 1000); }

void tfsched_clear_trace() { tfsched::ProcessDispatcher().scheduler().ClearTrace(); }

void tfsched_limit_process(int64_t timeout_ms, const char* sentence) {
  static std::atomic<int64_t> last{0};
  const int64_t mine = ++last;
  if (timeout_ms <= 0) return;
  tfsched::ProcessAlarm().After(timeout_ms * 1000, [mine, text = std::string(sentence)] {
    if (mine != last) return;
    std::fprintf(stderr, "%s\n", text.c_str());
    std::_Exit(1);  // no thread is asked to end: one of them waits for ever
  });
}

int tfsched_configure(const char* policy, int64_t credit_bytes, int64_t rate_bps) {
  return tfsched::Configure(policy, credit_bytes, rate_bps) ? 1 : 0;
}

void tfsched_set_piece_bytes(int64_t bytes) { tfsched::SetPieceBytes(bytes); }

void tfsched_set_crossing_variables(int64_t count) { tfsched::SetCrossingVariables(count); }
}
