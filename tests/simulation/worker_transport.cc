#include "tests/simulation/worker_transport.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace evenshard {
namespace {

int ProcessAt(absl::string_view address) {
  int process = -1;
  return absl::ConsumePrefix(&address, "ps-") && absl::SimpleAtoi(address, &process) ? process : -1;
}

}  // namespace

WorkerTransport::WorkerTransport(Context* context, int rank, NodeRef node, uint64_t incarnation,
                                 Buffers* buffers)
    : context_(*context),
      rank_(rank),
      node_(node),
      incarnation_(incarnation),
      buffers_(*buffers),
      slots_(context->config.shards()) {}

std::shared_ptr<Connection> WorkerTransport::Reach(int process) const {
  World& world = context_.world;
  return world.Connect(node_, world.Ref(context_.NodeOfPs(process)));
}

void WorkerTransport::Connect(const Attempt& attempt) {
  Disconnect(attempt.slot);
  slots_[attempt.slot].attempt = attempt.number;
  const absl::Time now = context_.world.clock(node_.node).Now();
  context_.world.Run(node_, std::max(attempt.not_before - now, absl::ZeroDuration()),
                     [this, attempt] {
                       if (slots_[attempt.slot].attempt == attempt.number) Try(attempt);
                     });
}

void WorkerTransport::Try(const Attempt& attempt) {
  Slot& slot = slots_[attempt.slot];
  slot.process = ProcessAt(attempt.address);
  slot.view = attempt.join.view();
  slot.control = Reach(slot.process);
  slot.control->OnBroken(0, [this, attempt](const absl::Status& status) {
    Broken(attempt.slot, attempt.number, status);
  });
  slot.control->Send(
      0, [this, attempt, context = &context_, process = slot.process, control = slot.control] {
        const absl::StatusOr<JoinResponse> response =
            context->ps(process)->Join(attempt.slot, attempt.join);
        control->Send(1, [this, attempt, response] { Joined(attempt, response); });
      });
}

void WorkerTransport::Joined(const Attempt& attempt, const absl::StatusOr<JoinResponse>& response) {
  Slot& slot = slots_[attempt.slot];
  if (slot.attempt != attempt.number) return;
  if (!response.ok()) {
    Broken(attempt.slot, attempt.number, response.status());
    return;
  }
  slot.control->Close(0, absl::OkStatus());
  slot.control.reset();
  OpenStreams(attempt.slot);
  core_->Connected(attempt.slot, attempt.number, *response);
}

void WorkerTransport::OpenStreams(int index) {
  Slot& slot = slots_[index];
  for (int i = 0; i < context_.config.proto().limits().connections(); ++i) {
    Stream stream{.connection = Reach(slot.process),
                  .end = std::make_shared<std::shared_ptr<PushStream>>()};
    stream.connection->OnBroken(0, [this, index, attempt = slot.attempt](const absl::Status& why) {
      Broken(index, attempt, why);
    });
    stream.connection->Send(0, [this, index, context = &context_, process = slot.process,
                                rank = rank_, incarnation = incarnation_, attempt = slot.attempt,
                                stream] {
      *stream.end = context->ps(process)->OpenStream(index, rank, incarnation, stream.connection);
      if (*stream.end == nullptr) return;
      (*stream.end)
          ->SetDeliver([this, index, attempt](const ParameterHeader& header,
                                              const std::string& data, int primary) {
            if (slots_[index].attempt != attempt) return;
            const absl::Status taken = buffers_.TakeParameters(index, header, data, primary);
            if (!taken.ok()) Broken(index, attempt, taken);
          });
    });
    slot.streams.push_back(std::move(stream));
  }
}

void WorkerTransport::Disconnect(int index) {
  Slot& slot = slots_[index];
  slot.attempt = 0;
  const absl::Status cancelled = absl::CancelledError("the worker has ended the stream");
  if (slot.control != nullptr) slot.control->Close(0, cancelled);
  slot.control.reset();
  for (const Stream& stream : slot.streams) stream.connection->Close(0, cancelled);
  slot.streams.clear();
}

void WorkerTransport::Broken(int index, uint64_t attempt, const absl::Status& status) {
  if (slots_[index].attempt != attempt) return;
  Disconnect(index);
  core_->Broken(index, attempt, status);
}

void WorkerTransport::Wake(int slot) {
  for (size_t i = 0; i < slots_[slot].streams.size(); ++i) {
    // The streams take turns.
    World& world = context_.world;
    world.Run(node_, world.typical_delay * world.dice().Between(0, 0.5),
              [this, slot, i, attempt = slots_[slot].attempt] {
                if (attempt != 0 && slots_[slot].attempt == attempt) {
                  Drain(slot, static_cast<int>(i));
                }
              });
  }
}

void WorkerTransport::Drain(int index, int stream) {
  const Stream& out = slots_[index].streams[stream];
  const std::vector<GradientHeader> headers = core_->round().Take(index, stream, /*has_data=*/true);
  if (headers.empty()) return;
  for (const GradientHeader& header : headers) {
    auto data = std::make_shared<const std::string>(buffers_.Gradient(header));
    out.connection->Send(0, [end = out.end, header, data] {
      if (*end != nullptr) (*end)->Push(header, data);
    });
  }
  core_->round().Sent(headers);
  World& world = context_.world;
  world.Run(node_, world.typical_delay * world.dice().Between(0, 0.2),
            [this, index, stream, attempt = slots_[index].attempt] {
              if (slots_[index].attempt == attempt) Drain(index, stream);
            });
}

void WorkerTransport::Pull(int index, std::function<void(const Answer&)> done) {
  const int process = slots_[index].process;
  const std::shared_ptr<Connection> connection = Reach(process);
  connection->OnBroken(0, [done](const absl::Status& status) {
    done(status.ok() ? absl::UnavailableError("it ended") : status);
  });
  connection->Send(0, [index, process, connection, done, rank = rank_, context = &context_] {
    const auto pulled = context->ps(process)->Pull(index, rank);
    connection->Send(1, [connection, done, pulled] {
      connection->Close(0, absl::OkStatus());
      done(pulled);
    });
  });
}

void WorkerTransport::Leave(int index, LeaveRequest request,
                            std::function<void(const absl::Status&)> done) {
  const int process = slots_[index].process;
  if (process < 0) return done(absl::OkStatus());
  request.set_view(slots_[index].view);
  const std::shared_ptr<Connection> connection = Reach(process);
  connection->OnBroken(0, [done](const absl::Status& status) {
    done(status.ok() ? absl::UnavailableError("it ended") : status);
  });
  connection->Send(0, [index, process, connection, done, request, context = &context_] {
    const absl::Status left = context->ps(process)->Leave(index, request);
    connection->Send(1, [connection, done, left] {
      connection->Close(0, absl::OkStatus());
      done(left);
    });
  });
}

}  // namespace evenshard
