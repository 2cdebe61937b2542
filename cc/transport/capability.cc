// The build's version, and the mark that carries it; see capability.h.
#include "cc/transport/capability.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <mutex>
#include <set>
#include <vector>

#include "cc/core/log_level.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_def.pb.h"
#include "tensorflow/core/framework/op_def_util.h"
#include "tensorflow/core/platform/hash.h"
#include "tensorflow/core/platform/logging.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tfsched {
namespace {

// To be increased when an op of the same definition comes to mean something else.
constexpr int kConventions = 2;

constexpr char kOpPrefix[] = "Tfsched";
constexpr char kMarkBegin[] = " [tfsched";  // " [tfsched VERSION]"; builds without versions wrote " [tfsched]"
constexpr char kMarkEnd = ']';

std::string MakeVersion() {
  tensorflow::OpList registered;
  tensorflow::OpRegistry::Global()->Export(/*include_internal=*/false, &registered);
  std::vector<std::string> definitions;
  for (tensorflow::OpDef& op : *registered.mutable_op()) {
    if (op.name().rfind(kOpPrefix, 0) != 0) continue;
    tensorflow::RemoveDescriptionsFromOpDef(&op);
    definitions.push_back(op.SerializeAsString());  // without maps, so the same bytes in every process
  }
  std::sort(definitions.begin(), definitions.end());
  uint64_t digest = 0;
  for (const std::string& definition : definitions) {
    digest = tensorflow::Hash64(definition.data(), definition.size(), digest);
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%d-%016" PRIx64, kConventions, digest);
  return text;
}

void WarnOfOtherBuild(const std::string& device, const std::string& version) {
  std::string task, unused;
  if (!tensorflow::DeviceNameUtils::SplitDeviceName(device, &task, &unused)) task = device;
  static std::mutex mu;
  static auto* warned = new std::set<std::string>;
  std::lock_guard<std::mutex> lock(mu);
  if (!warned->insert(task).second) return;
  TFSCHED_WARNING
      << task << " runs build " << (version.empty() ? "0 (without a version)" : version)
      << " of tfsched and this process runs " << BuildVersion()
      << ": what that task sends stays unordered, and its variables keep the barrier. Install the same tfsched in all "
         "tasks and start them again.";
}

}  // namespace

const std::string& BuildVersion() {
  static const auto* version = new std::string(MakeVersion());
  return *version;
}

void MarkCapable(tensorflow::DeviceAttributes* device) {
  device->mutable_physical_device_desc()->append(kMarkBegin).append(" ").append(BuildVersion()).push_back(kMarkEnd);
}

bool IsCapable(const tensorflow::DeviceAttributes& device) {
  const std::string& description = device.physical_device_desc();
  const size_t mark = description.find(kMarkBegin);
  if (mark == std::string::npos) return false;
  size_t begin = mark + sizeof(kMarkBegin) - 1;
  if (begin < description.size() && description[begin] == ' ') ++begin;
  const size_t end = description.find(kMarkEnd, begin);
  const std::string version = end == std::string::npos ? "" : description.substr(begin, end - begin);
  if (version == BuildVersion()) return true;
  WarnOfOtherBuild(device.name(), version);
  return false;
}

}  // namespace tfsched
