#include "common/control/etcd/etcd_threads.h"

#include <catch2/catch.hpp>

#include "common/base/clock.h"

namespace evenshard {

TEST_CASE("a call may take a part of the lease's time") {
  ClusterConfig config;
  config.mutable_recovery()->mutable_etcd()->add_endpoint("127.0.0.1:1");
  const RealClock clock;
  config.mutable_recovery()->set_silence_seconds(0.3);
  CHECK(EtcdThreads::Of(config, &clock)->timeout() == absl::Milliseconds(500));
  config.mutable_recovery()->set_silence_seconds(4);
  CHECK(EtcdThreads::Of(config, &clock)->timeout() == absl::Milliseconds(800));
  config.mutable_recovery()->set_silence_seconds(60);
  CHECK(EtcdThreads::Of(config, &clock)->timeout() == absl::Seconds(1));
}

}  // namespace evenshard
