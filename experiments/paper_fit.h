#ifndef PS_EXPERIMENTS_PAPER_FIT_H_
#define PS_EXPERIMENTS_PAPER_FIT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ps {

// The figures of Choi, Ko, Kim, "Performance Evaluation: Parameter Sharding approaches for DNN
// Models with a Very Large Layer", explained by one number: VGG-16 over 10 Gb/s, one shard for
// two workers, pushed and then pulled, so that an iteration takes
//
//   outside_seconds + 2 * W * (bytes of the fullest shard) / B
//
// with the same outside_seconds for both placements and any number of workers. They are fitted
// on the ratio with 4 workers; the one with 8 is then a prediction. Layer-based placement has
// fc6 alone on its shard, the best that whole layers allow.
struct PaperFit {
  struct Figure {
    int workers = 0;
    int shards = 0;
    double layer_based_seconds = 0;   // of the exchange
    double memory_based_seconds = 0;  // of the exchange
    double ratio = 0;                 // of whole iterations, by this model
    double paper_ratio = 0;           // measured by the paper
    bool fitted = false;              // the model's is the paper's by construction
  };

  double link_gbps = 0;
  double outside_seconds = 0;
  std::vector<Figure> figures;
};

// Errors: none but those of a plan that cannot be made.
absl::StatusOr<PaperFit> FitPaper();

std::string PaperFitText(const PaperFit& fit);
std::string PaperFitJson(const PaperFit& fit);

}  // namespace ps

#endif  // PS_EXPERIMENTS_PAPER_FIT_H_
