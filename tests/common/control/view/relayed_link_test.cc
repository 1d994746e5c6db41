#include "common/control/view/relayed_link.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace evenshard {
namespace {

// A link whose views the test makes.
class PlayedLink final : public ViewLink {
 public:
  void Start(Listener started) override { listener = std::move(started); }
  void Announce(const ProcessState& state) override { announced = state.ps(); }
  bool HoldsRoles() const override { return holds_roles; }

  void Send(uint64_t number) {
    View view;
    view.set_number(number);
    listener.on_view(view);
  }

  Listener listener;
  uint32_t announced = 0;
  bool holds_roles = true;
};

// What a listener has heard.
struct Heard {
  ViewLink::Listener Listener() {
    return {.on_view = [this](const View& view) { views.push_back(view.number()); },
            .on_end = [this](const absl::Status& reason) { end = std::string(reason.message()); }};
  }
  std::vector<uint64_t> views;
  std::string end;
};

TEST_CASE("a listener that comes later hears the latest view, and those that follow") {
  PlayedLink link;
  Heard early, late;
  RelayedLink relayed(&link, early.Listener());
  link.Send(1);
  link.Send(3);
  CHECK(early.views == std::vector<uint64_t>{1, 3});
  relayed.Start(late.Listener());
  CHECK(late.views == std::vector<uint64_t>{3});
  link.Send(4);
  CHECK(late.views == std::vector<uint64_t>{3, 4});
  CHECK(early.views == std::vector<uint64_t>{1, 3});
}

TEST_CASE("a listener that comes before any view hears nothing yet, and after the end the end") {
  PlayedLink link;
  Heard early, late, last;
  RelayedLink relayed(&link, early.Listener());
  relayed.Start(late.Listener());
  CHECK(late.views.empty());
  CHECK(late.end.empty());
  link.listener.on_end(absl::AbortedError("the run has failed"));
  CHECK(late.end == "the run has failed");
  CHECK(early.end.empty());
  relayed.Start(last.Listener());
  CHECK(last.end == "the run has failed");
}

TEST_CASE("states and roles are the link's") {
  PlayedLink link;
  Heard early;
  RelayedLink relayed(&link, early.Listener());
  ProcessState state;
  state.set_ps(7);
  relayed.Announce(state);
  CHECK(link.announced == 7);
  CHECK(relayed.HoldsRoles());
  link.holds_roles = false;
  CHECK_FALSE(relayed.HoldsRoles());
}

}  // namespace
}  // namespace evenshard
