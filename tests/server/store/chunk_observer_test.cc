#include "server/store/chunk_observer.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/server/update/policy_fixture.h"

namespace evenshard {
namespace {

// Writes down what it is asked and told.
class NamedObserver final : public ChunkObserver {
 public:
  NamedObserver(std::string name, std::vector<std::string>* calls)
      : name_(std::move(name)), calls_(*calls) {}

  bool ReadsGradients() const override { return reads; }
  bool BeforeChange(int index, const StoredChunk& chunk) override {
    calls_.push_back(name_ + " before " + std::to_string(index));
    return agrees;
  }
  std::optional<uint64_t> Changed(int index, const StoredChunk& chunk,
                                  const ChunkChange& change) override {
    calls_.push_back(name_ + " after " + std::to_string(index));
    return number;
  }
  void ChangeFailed(const absl::Status& failure) override {
    calls_.push_back(name_ + " " + std::string(failure.message()));
  }

  bool reads = false;
  bool agrees = true;
  std::optional<uint64_t> number;

 private:
  const std::string name_;
  std::vector<std::string>& calls_;
};

using Calls = std::vector<std::string>;

class ObserversFixture : public PolicyFixture {
 public:
  bool BeforeChange() {
    absl::MutexLock lock(&chunk().mutex);
    return observers().BeforeChange(1, chunk());
  }
  std::optional<uint64_t> Changed() {
    absl::MutexLock lock(&chunk().mutex);
    return observers().Changed(1, chunk(), {});
  }
  StoredChunk& chunk() {
    if (policy == nullptr) Start(1);
    return store->chunks()[1];
  }
  ChunkObservers observers() { return ChunkObservers({&first, &second}); }

  Calls calls;
  NamedObserver first{"first", &calls};
  NamedObserver second{"second", &calls};
};

}  // namespace

TEST_CASE_METHOD(ObserversFixture, "observers are asked and told in their order") {
  CHECK(BeforeChange());
  CHECK(!Changed().has_value());
  CHECK(calls == Calls{"first before 1", "second before 1", "first after 1", "second after 1"});
}

TEST_CASE_METHOD(ObserversFixture, "those behind one that holds a change up are not asked") {
  first.agrees = false;
  CHECK(!BeforeChange());
  CHECK(calls == Calls{"first before 1"});
  first.agrees = true;
  second.agrees = false;
  CHECK(!BeforeChange());
}

TEST_CASE_METHOD(ObserversFixture, "a change has the number that one of them gives") {
  NamedObserver& numbering = GENERATE(true, false) ? first : second;
  numbering.number = 7;
  CHECK(Changed() == std::optional<uint64_t>(7));
  CHECK(calls.size() == 2);
}

TEST_CASE_METHOD(ObserversFixture, "all hear of a change that has failed") {
  observers().ChangeFailed(absl::OutOfRangeError("infinite"));
  CHECK(calls == Calls{"first infinite", "second infinite"});
}

TEST_CASE_METHOD(ObserversFixture, "gradients are read if one of them reads them") {
  CHECK(!observers().ReadGradients());
  second.reads = true;
  CHECK(observers().ReadGradients());
}

}  // namespace evenshard
