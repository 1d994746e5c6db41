#include "common/net/same_host.h"

#include <catch2/catch.hpp>

namespace evenshard {

TEST_CASE("unix sockets, loopback and the host's own addresses are of this host") {
  CHECK(IsOfThisHost("unix:/tmp/shard0.sock"));
  CHECK(IsOfThisHost("127.0.0.1:50051"));
  CHECK(IsOfThisHost("127.3.2.1:50051"));
  CHECK(IsOfThisHost("[::1]:50051"));
  CHECK(IsOfThisHost("localhost:50051"));
}

TEST_CASE("other addresses, and names that cannot be resolved, are not of this host") {
  CHECK(!IsOfThisHost("192.0.2.1:50051"));  // an address reserved for documentation (RFC 5737)
  CHECK(!IsOfThisHost("[2001:db8::1]:50051"));
  CHECK(!IsOfThisHost("no.such.host.invalid:50051"));
  CHECK(!IsOfThisHost(":50051"));
}

TEST_CASE("only exchanges of float32 both ways go through shared memory") {
  ExchangeConfig exchange;
  CHECK(MayShareMemory(exchange));
  exchange.set_gradient_encoding(FLOAT16);
  CHECK(!MayShareMemory(exchange));
  exchange.set_gradient_encoding(FLOAT32);
  exchange.set_parameter_encoding(BFLOAT16);
  CHECK(!MayShareMemory(exchange));
  exchange.set_parameter_encoding(FLOAT32);
  exchange.set_shared_memory(false);
  CHECK(!MayShareMemory(exchange));
}

}  // namespace evenshard
