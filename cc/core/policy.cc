// The table of policies by name.
#include "cc/core/policy.h"

#include <map>
#include <utility>

namespace tfsched {
namespace {

struct Entry {
  PolicySpan span = PolicySpan::kStep;
  PolicyFactory factory;
};

std::map<std::string, Entry>& Entries() {
  static auto* entries = new std::map<std::string, Entry>();
  return *entries;
}

}  // namespace

PolicyRegistrar::PolicyRegistrar(const std::string& name, PolicySpan span, PolicyFactory factory) {
  Entries()[name] = Entry{span, std::move(factory)};
}

bool HasPolicy(const std::string& name) { return Entries().count(name) != 0; }

PolicySpan SpanOf(const std::string& name) {
  auto it = Entries().find(name);
  return it == Entries().end() ? PolicySpan::kStep : it->second.span;
}

std::unique_ptr<Policy> MakePolicy(const std::string& name, const PolicyOptions& options) {
  auto it = Entries().find(name);
  return it == Entries().end() ? nullptr : it->second.factory(options);
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const auto& entry : Entries()) names.push_back(entry.first);
  return names;
}

}  // namespace tfsched
