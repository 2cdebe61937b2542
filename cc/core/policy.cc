// The table of policies by name.
#include "cc/core/policy.h"

#include <map>
#include <utility>

namespace tfsched {
namespace {

std::map<std::string, PolicyFactory>& Factories() {
  static auto* factories = new std::map<std::string, PolicyFactory>();
  return *factories;
}

}  // namespace

PolicyRegistrar::PolicyRegistrar(const std::string& name, PolicyFactory factory) { Factories()[name] = std::move(factory); }

std::unique_ptr<Policy> MakePolicy(const std::string& name, const PolicyOptions& options) {
  auto it = Factories().find(name);
  return it == Factories().end() ? nullptr : it->second(options);
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const auto& entry : Factories()) names.push_back(entry.first);
  return names;
}

}  // namespace tfsched
