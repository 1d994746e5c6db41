#include "worker/compute/cpu_shared_memory.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ps {
namespace {

using dnnl::memory;

struct Use {
  memory handle;
  size_t first = 0;
  size_t last = 0;
};

std::vector<Use> FindUses(const std::vector<std::vector<memory>>& steps) {
  std::vector<Use> uses;  // in the order of their first steps
  for (size_t step = 0; step < steps.size(); ++step) {
    for (const memory& handle : steps[step]) {
      if (!handle) continue;
      const auto known = std::find_if(uses.begin(), uses.end(),
                                      [&](const Use& use) { return use.handle == handle; });
      if (known == uses.end()) {
        uses.push_back({handle, step, step});
      } else {
        known->last = step;
      }
    }
  }
  return uses;
}

// A piece of memory, and those that use it one after the other.
struct Piece {
  size_t bytes = 0;
  std::vector<Use> users;
};

}  // namespace

std::vector<memory> ShareMemory(const CpuDevice& device,
                                const std::vector<std::vector<memory>>& steps) {
  std::vector<Piece> pieces;
  for (Use& use : FindUses(steps)) {
    const size_t bytes = use.handle.get_desc().get_size();
    // The free piece that has to grow least; of those that need not, the smallest.
    Piece* best = nullptr;
    const auto cost = [&](const Piece& piece) {
      const size_t missing = bytes > piece.bytes ? bytes - piece.bytes : 0;
      return std::pair(missing, piece.bytes);
    };
    for (Piece& piece : pieces) {
      if (piece.users.back().last >= use.first) continue;
      if (best == nullptr || cost(piece) < cost(*best)) best = &piece;
    }
    if (best == nullptr) best = &pieces.emplace_back();
    best->bytes = std::max(best->bytes, bytes);
    best->users.push_back(std::move(use));
  }
  std::vector<memory> owned;
  for (Piece& piece : pieces) {
    owned.push_back(device.Allocate(Bytes(piece.bytes)));
    for (Use& use : piece.users) use.handle.set_data_handle(owned.back().get_data_handle());
  }
  return owned;
}

}  // namespace ps
