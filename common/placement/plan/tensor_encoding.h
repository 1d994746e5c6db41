#ifndef EVENSHARD_COMMON_PLACEMENT_PLAN_TENSOR_ENCODING_H_
#define EVENSHARD_COMMON_PLACEMENT_PLAN_TENSOR_ENCODING_H_

#include "common/config/parameter_encodings.h"
#include "common/placement/model/model.h"
#include "proto/config.pb.h"
#include "proto/encoding.pb.h"

namespace evenshard {

// The encodings in which a tensor's gradient and its parameters travel in training. What a worker
// has in 16 bits travels as it is, all else in the exchange's encodings, and buffers in FLOAT32. An
// encoding that is for gradients only is that of all gradients, and of nothing else.
inline Encoding GradientEncodingOf(const ExchangeConfig& exchange, const Tensor& tensor) {
  if (tensor.role == TensorRole::kBuffer) return FLOAT32;
  const Encoding encoding = exchange.gradient_encoding();
  if (!IsForParameters(encoding)) {
    return tensor.role == TensorRole::kParameter ? encoding : FLOAT32;
  }
  const Encoding type = tensor.gradient_type();
  return type != FLOAT32 ? type : encoding;
}
inline Encoding ParameterEncodingOf(const ExchangeConfig& exchange, const Tensor& tensor) {
  if (tensor.role == TensorRole::kBuffer) return FLOAT32;
  return tensor.type != FLOAT32 ? tensor.type : exchange.parameter_encoding();
}
// The encoding of the answers to pushes, but for those to a worker that does not have the
// parameters before the update: those are answered with the parameters.
inline Encoding AnswerEncodingOf(const ExchangeConfig& exchange, const Tensor& tensor) {
  const bool is_rounded = exchange.has_update_encoding() && tensor.role == TensorRole::kParameter;
  return is_rounded ? exchange.update_encoding() : ParameterEncodingOf(exchange, tensor);
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_PLAN_TENSOR_ENCODING_H_
