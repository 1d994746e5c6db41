// What one worker keeps by itself goes to another through real shards.

#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/testing/cluster.h"

namespace evenshard {
namespace {

using Catch::Contains;

// kSmallConfig with other numbers of shards and workers.
std::string ConfigOf(int shards, int workers) {
  std::string text = kSmallConfig;
  const std::string shard = "shard { address: \"127.0.0.1:0\" }\n";
  const size_t at = text.find(shard);
  text.erase(at, text.rfind(shard) + shard.size() - at);
  for (int i = 0; i < shards; ++i) text.insert(at, shard);
  const std::string two = "workers: 2";
  return text.replace(text.find(two), two.size(), absl::StrCat("workers: ", workers));
}

WorkerState::Memory MemoryOf(std::vector<std::string>& parts) {
  WorkerState::Memory memory;
  for (std::string& part : parts) memory.push_back(absl::MakeSpan(part));
  return memory;
}

std::string Joined(const std::vector<std::string>& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::string());
}

// What a worker has received: it is told the sizes of its parts by the text.
struct Received {
  absl::Status status;
  std::string text;
  std::vector<std::string> parts;
};

Received ReceiveFrom(Exchange& exchange, const std::vector<size_t>& sizes) {
  Received received;
  received.status = exchange.ReceiveState([&](const std::string& text) {
    received.text = text;
    received.parts.clear();
    for (const size_t size : sizes) received.parts.emplace_back(size, '\0');
    return absl::StatusOr<WorkerState::Memory>(MemoryOf(received.parts));
  });
  return received;
}

// Parts of 0 to `most` bytes.
std::vector<std::string> RandomParts(uint32_t seed, size_t most) {
  std::mt19937 random(seed);
  std::vector<std::string> parts(random() % 20);
  for (std::string& part : parts) {
    part.resize(random() % 3 == 0 ? random() % 3 : random() % (most + 1));
    for (char& byte : part) byte = static_cast<char>(random());
  }
  return parts;
}

// Offers the state until another worker has received it, as one that waits does.
std::jthread Offering(Exchange& exchange,
                      const std::function<absl::StatusOr<WorkerState>()>& make) {
  return std::jthread([&exchange, make](const std::stop_token& stop) {
    while (!stop.stop_requested()) exchange.OfferState(make, [] {});
  });
}

std::unique_ptr<ParameterServer::Stub> StubTo(const TestCluster& cluster, int shard) {
  return ParameterServer::NewStub(
      grpc::CreateChannel(cluster.addresses()[shard], grpc::InsecureChannelCredentials()));
}

// A worker made of gRPC's generated code that has been asked for its state.
class RawSender {
 public:
  RawSender(const TestCluster& cluster, int rank, uint64_t incarnation)
      : stub_(StubTo(cluster, 0)), rank_(rank), incarnation_(incarnation) {
    const JoinRequest request = cluster.RequestToJoin(rank, incarnation);
    for (int shard = 0; shard < cluster.config().shards(); ++shard) {
      grpc::ClientContext context;
      JoinResponse response;
      const std::unique_ptr<ParameterServer::Stub> stub = StubTo(cluster, shard);
      REQUIRE(stub->Join(&context, request, &response).ok());
      // Without a stream it would be lost.
      contexts_.push_back(std::make_unique<grpc::ClientContext>());
      contexts_.back()->AddMetadata("ps-worker", absl::StrCat(rank));
      contexts_.back()->AddMetadata("ps-incarnation", absl::StrCat(incarnation));
      streams_.push_back(stub->Exchange(contexts_.back().get()));
    }
  }

  ~RawSender() {
    for (const auto& context : contexts_) context->TryCancel();
    for (const auto& stream : streams_) stream->Finish();
  }

  // Offers the state, or says that sending that of a ticket has failed.
  uint64_t Offer(uint64_t ticket = 0) {
    OfferWorkerStateRequest request;
    request.set_ticket(ticket);
    request.set_worker(rank_);
    request.set_incarnation(incarnation_);
    grpc::ClientContext context;
    OfferWorkerStateResponse response;
    const grpc::Status status = stub_->OfferWorkerState(&context, request, &response);
    INFO(status.error_message());
    REQUIRE(status.ok());
    return response.ticket();
  }

  // Sends these pieces to shard 0, and ends the call, or breaks it off.
  grpc::Status Send(const std::string& ticket, const std::vector<WorkerStatePiece>& pieces,
                    bool breaks_off = false) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    context.AddMetadata("ps-worker", absl::StrCat(rank_));
    context.AddMetadata("ps-incarnation", absl::StrCat(incarnation_));
    if (!ticket.empty()) context.AddMetadata("ps-ticket", ticket);
    SendWorkerStateResponse response;
    const auto writer = stub_->SendWorkerState(&context, &response);
    for (const WorkerStatePiece& piece : pieces) {
      if (!writer->Write(piece)) break;
    }
    if (breaks_off) context.TryCancel();
    writer->WritesDone();
    return writer->Finish();
  }

 private:
  const std::unique_ptr<ParameterServer::Stub> stub_;
  const int rank_;
  const uint64_t incarnation_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<GradientChunks, ParameterChunks>>> streams_;
};

WorkerStatePiece First(uint64_t total, uint64_t piece) {
  WorkerStatePiece first;
  first.set_total_bytes(total);
  first.set_piece_bytes(piece);
  return first;
}

WorkerStatePiece Piece(const std::string& data) {
  WorkerStatePiece piece;
  piece.set_data(data);
  return piece;
}

}  // namespace

TEST_CASE("a state arrives as it was sent, through any number of shards") {
  const int shards = GENERATE(1, 2, 3);
  const uint32_t seed = GENERATE(range(1U, 5U));
  TestCluster cluster(MustParse(ConfigOf(shards, 2)));
  const std::unique_ptr<Exchange> from = *cluster.Connect(0);
  const std::unique_ptr<Exchange> to = *cluster.Connect(1);
  std::vector<std::string> parts = RandomParts(seed, 5000);
  const std::string text(GENERATE(0, 10, 5000), 't');
  // Another division of the same bytes.
  const std::vector<size_t> sizes{Joined(parts).size() / 3,
                                  Joined(parts).size() - Joined(parts).size() / 3};
  CAPTURE(shards, seed, Joined(parts).size());
  for (int time = 0; time < 2; ++time) {
    const std::jthread offering =
        Offering(*from, [&] { return WorkerState{.text = text, .memory = MemoryOf(parts)}; });
    const Received received = ReceiveFrom(*to, sizes);
    INFO(received.status.ToString());
    REQUIRE(received.status.ok());
    CHECK(received.text == text);
    CHECK(Joined(received.parts) == Joined(parts));
  }
}

TEST_CASE("a state for which there is no room, or that does not fit, is refused") {
  TestCluster cluster(MustParse(kSmallConfig));
  const std::unique_ptr<Exchange> from = *cluster.Connect(0);
  const std::unique_ptr<Exchange> to = *cluster.Connect(1);
  std::vector<std::string> parts{"12345678"};
  const std::jthread offering =
      Offering(*from, [&] { return WorkerState{.text = "text", .memory = MemoryOf(parts)}; });
  CHECK(ReceiveFrom(*to, {5, 2}).status ==
        absl::FailedPreconditionError(
            absl::StrCat("shard 0 (", cluster.addresses()[0],
                         "): a worker's state has 8 bytes, and there is room for 7")));
  const absl::Status refused = to->ReceiveState(
      [](const std::string&) { return absl::FailedPreconditionError("another model"); });
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Contains("another model"));
}

TEST_CASE("a sender's refusal reaches the one that asks") {
  TestCluster cluster(MustParse(kSmallConfig));
  const std::unique_ptr<Exchange> from = *cluster.Connect(0);
  const std::unique_ptr<Exchange> to = *cluster.Connect(1);
  const std::jthread offering = Offering(*from, []() -> absl::StatusOr<WorkerState> {
    return absl::FailedPreconditionError("it has not stepped");
  });
  const absl::Status refused = ReceiveFrom(*to, {}).status;
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Contains("worker 0 cannot send what it keeps by "
                                                      "itself: it has not stepped"));
}

TEST_CASE("what all workers ask for is refused, since a run without views cannot go back") {
  TestCluster cluster(MustParse(kSmallConfig));
  const std::vector<absl::Status> outcomes =
      cluster.RunWorkers([](int, Exchange& exchange) { return ReceiveFrom(exchange, {}).status; });
  for (const absl::Status& outcome : outcomes) {
    CHECK_THAT(std::string(outcome.message()), Contains("nobody has the parameters"));
  }
}

TEST_CASE("a sender that breaks off is replaced by another one") {
  TestCluster cluster(MustParse(ConfigOf(1, 3)));
  const std::unique_ptr<Exchange> from = *cluster.Connect(0);
  const std::unique_ptr<Exchange> to = *cluster.Connect(1);
  RawSender breaks(cluster, 2, 4711);
  std::vector<std::string> state{std::string(3000, 'x')};
  const int way = GENERATE(0, 1, 2);
  CAPTURE(way);
  std::jthread other([&] {
    uint64_t ticket = 0;
    while ((ticket = breaks.Offer()) == 0) absl::SleepFor(absl::Milliseconds(1));
    std::vector<WorkerStatePiece> pieces;
    if (way > 0) pieces = {First(3000, 1024), Piece(state[0].substr(0, 1024))};
    breaks.Send(absl::StrCat(ticket), pieces, /*breaks_off=*/way != 1);
    breaks.Offer(ticket);
    bool is_sent = false;
    while (!is_sent) {
      from->OfferState(
          [&]() -> absl::StatusOr<WorkerState> {
            is_sent = true;
            return WorkerState{.text = "", .memory = MemoryOf(state)};
          },
          [] {});
    }
  });
  const Received received = ReceiveFrom(*to, {3000});
  INFO(received.status.ToString());
  REQUIRE(received.status.ok());
  CHECK(received.parts == state);
}

TEST_CASE("a state whose pieces are not what they should be is refused") {
  TestCluster cluster(MustParse(ConfigOf(1, 2)));
  const std::unique_ptr<Exchange> to = *cluster.Connect(1);
  RawSender sender(cluster, 0, 4711);
  const auto [pieces, message] = GENERATE(table<std::vector<WorkerStatePiece>, std::string>({
      {{First(10, 8), Piece("short")}, "has 5 bytes, expected 8"},
      {{First(10, 8), Piece("12345678"), Piece("123")}, "has 3 bytes, expected 2"},
      {{First(10, 8), Piece("12345678"), Piece("12"), Piece("1")}, "has 1 bytes, expected 0"},
      {{First(10, 0), Piece("1")}, "has 10 bytes in pieces of 0, and 0 of text"},
      {{First(uint64_t{1} << 63, 8)}, "has 9223372036854775808 bytes in pieces of 8"},
      {{First(uint64_t{1} << 60, 8)}, "and there is room for 10"},
  }));
  std::jthread other([&] {
    uint64_t ticket = 0;
    while ((ticket = sender.Offer()) == 0) absl::SleepFor(absl::Milliseconds(1));
    sender.Send(absl::StrCat(ticket), pieces);
  });
  const absl::Status refused = ReceiveFrom(*to, {10}).status;
  CHECK(!refused.ok());
  CHECK_THAT(std::string(refused.message()), Contains(message));
}

TEST_CASE("strangers are refused, and a ticket has one sender") {
  TestCluster cluster(MustParse(kSmallConfig));
  RawSender sender(cluster, 0, 4711);
  CHECK(sender.Send("", {}).error_message() ==
        "the call's metadata lack ps-ticket, allowed: a decimal number");
  const std::unique_ptr<ParameterServer::Stub> stub = StubTo(cluster, 0);
  SECTION("another incarnation") {
    OfferWorkerStateRequest offer;
    offer.set_incarnation(1);
    grpc::ClientContext context;
    OfferWorkerStateResponse response;
    CHECK(stub->OfferWorkerState(&context, offer, &response).error_code() ==
          grpc::StatusCode::FAILED_PRECONDITION);
    AskWorkerStateRequest ask;
    ask.set_incarnation(1);
    grpc::ClientContext asking;
    AskWorkerStateResponse answer;
    CHECK(stub->AskWorkerState(&asking, ask, &answer).error_code() ==
          grpc::StatusCode::FAILED_PRECONDITION);
    ReceiveWorkerStateRequest receive;
    receive.set_incarnation(1);
    grpc::ClientContext receiving;
    const auto reader = stub->ReceiveWorkerState(&receiving, receive);
    CHECK(reader->Finish().error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  }
  SECTION("a sender that is gone before its receiver comes") {
    // Neither does the shard wait for it when it ends.
    CHECK(sender.Send("5", {First(10, 8)}, /*breaks_off=*/true).error_code() ==
          grpc::StatusCode::CANCELLED);
  }
  SECTION("two senders") {
    std::jthread first([&] { sender.Send("5", {First(10, 8)}); });
    std::string message;
    while (message.empty()) {
      RawSender again(cluster, 0, 4711);
      message = again.Send("5", {}, /*breaks_off=*/false).error_message();
    }
    CHECK(message == "the state has a sender");
    ReceiveWorkerStateRequest receive;
    receive.set_incarnation(4711);
    receive.set_ticket(5);
    grpc::ClientContext receiving;
    const auto reader = stub->ReceiveWorkerState(&receiving, receive);
    WorkerStatePiece piece;
    while (reader->Read(&piece)) {
    }
    CHECK(reader->Finish().ok());
  }
}

}  // namespace evenshard
