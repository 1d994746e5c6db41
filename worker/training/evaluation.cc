#include "worker/training/evaluation.h"

#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"
#include "worker/data/order/batch_order.h"
#include "worker/training/loader_threads.h"

namespace evenshard {

absl::Status Evaluation::Open() {
  const int64_t images = dataset_->size();
  const int64_t batch_size = config_.proto().training().batch_size();
  ASSIGN_OR_RETURN(loader_, BatchLoader::Create({.dataset = dataset_,
                                                 .order = SequentialOrder(images, batch_size),
                                                 .batch_size = batch_size,
                                                 .end = (images + batch_size - 1) / batch_size,
                                                 .threads = LoaderThreads(config_)}));
  return absl::OkStatus();
}

std::vector<absl::Span<float>> Evaluation::buffers() {
  return is_open() ? loader_->buffers() : std::vector<absl::Span<float>>();
}

absl::StatusOr<double> Evaluation::Run(ComputeBackend& backend, absl::Span<const float> parameters,
                                       int64_t iteration,
                                       const std::function<absl::Status()>& check) {
  const int64_t images = dataset_->size();
  const int64_t batch_size = config_.proto().training().batch_size();
  double loss = 0;
  int64_t correct = 0;
  for (int64_t i = 0; i * batch_size < images; ++i) {
    RETURN_IF_ERROR(check());
    ASSIGN_OR_RETURN(const Batch batch, loader_->Load(i));
    ASSIGN_OR_RETURN(const BatchResult result, backend.Evaluate(batch, parameters));
    loss += result.loss * batch.size;
    correct += result.correct;
  }
  const double accuracy = static_cast<double>(correct) / images;
  spdlog::info("iteration {}: accuracy {:.2f} % ({} of {} {} images), loss {:.4f}", iteration,
               accuracy * 100, correct, images,
               config_.proto().data().holdout() > 0 ? "held-out" : "test", loss / images);
  return accuracy;
}

}  // namespace evenshard
