#ifndef PS_COMMON_VIEW_CREW_KEEPER_H_
#define PS_COMMON_VIEW_CREW_KEEPER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/view/event_log.h"
#include "common/view/start_table.h"
#include "proto/config.pb.h"
#include "proto/view.pb.h"

namespace ps {

// The part of ViewKeeper that decides which workers belong to the run, and from which iteration on
// each counts. Each method changes `next`, which begins as the present view and becomes the next
// one if it differs. Not thread-safe.
class CrewKeeper {
 public:
  struct Settings {
    bool synchronous = true;
    Recovery::WorkerLoss worker_loss = Recovery::FAIL;
    uint32_t min_workers = 1;
    // How long a worker that has never been seen is waited for, before CONTINUE goes on without it.
    absl::Duration startup;
    // The same for ASYNC's end, at which a worker that is lost may be about to come back.
    absl::Duration silence;
  };

  // `workers` and `events` must outlive the object.
  CrewKeeper(Settings settings, const StartTable* workers, EventLog* events);

  // A new generation begins at `iteration`: everyone who is not gone trains from there on.
  void BeginGeneration(uint64_t iteration, View* next);

  // Returns where a slot stands in the present view, or nullptr if its primary has not said so yet.
  using PositionOf = std::function<const ProcessState::Position*(int slot)>;

  // Notes who has come, gone and finished, and changes the crew. Returns why the run has failed, or
  // an empty text.
  std::string Update(const View& view, const PositionOf& position_of, absl::Time now, View* next);

  // Whether every worker whose gradients count has trained to the end.
  bool AllFinished(const View& view, absl::Time now) const;

 private:
  bool ChangesCrews() const;
  void NoteLosses(absl::Time now, View* next);
  void Admit(absl::Time now, View* next);
  bool FinishChange(const View& view, const PositionOf& position_of, View* next);
  void BeginChange(absl::Time now, View* next);
  bool IsGivenUp(uint32_t rank, absl::Time now) const;
  std::string WhatHappened(uint32_t rank) const;

  const Settings settings_;
  const StartTable& workers_;
  EventLog& events_;
};

}  // namespace ps

#endif  // PS_COMMON_VIEW_CREW_KEEPER_H_
