#include "worker/compute/cuda/timeline.h"

#include <algorithm>

namespace evenshard {

void CudaTimeline::StartPass(cudaStream_t stream) {
  if (trace_ == nullptr) return;
  absl::MutexLock lock(&mutex_);
  Anchor& anchor = anchors_.emplace_back();
  anchor.event.Record(stream);
  anchor.event.Await();
  anchor.time = trace_->Now();
  if (anchors_.size() > 2) anchors_.pop_front();
}

void CudaTimeline::Begin(Trace::Row row, absl::string_view what, int layer, cudaStream_t stream) {
  if (trace_ == nullptr) return;
  absl::MutexLock lock(&mutex_);
  Span& span = spans_.emplace_back();
  span.row = row;
  span.what = what;
  span.layer = layer;
  span.begin.Record(stream);
}

void CudaTimeline::End(Trace::Row row, int layer, cudaStream_t stream) {
  if (trace_ == nullptr) return;
  absl::MutexLock lock(&mutex_);
  const auto span = std::find_if(spans_.rbegin(), spans_.rend(), [&](const Span& span) {
    return span.row == row && span.layer == layer && !span.ended;
  });
  if (span == spans_.rend()) return;
  span->end.Record(stream);
  span->ended = true;
}

void CudaTimeline::FinishPass(int64_t iteration) {
  if (trace_ == nullptr) return;
  absl::MutexLock lock(&mutex_);
  const Anchor& anchor = anchors_.front();
  const auto time_of = [&](const CudaEvent& event) {
    return anchor.time + absl::Seconds(CudaEvent::SecondsBetween(anchor.event, event));
  };
  spans_.remove_if([&](const Span& span) {
    if (!span.ended || !span.end.IsReached()) return false;
    trace_->Span(span.row, span.what, span.layer, iteration, time_of(span.begin),
                 time_of(span.end));
    return true;
  });
}

}  // namespace evenshard
