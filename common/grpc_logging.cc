#include "common/grpc_logging.h"

#include <grpc/support/log.h>

#include "spdlog/spdlog.h"

namespace ps {

void RouteGrpcLogs() {
  gpr_set_log_function([](gpr_log_func_args* line) {
    spdlog::debug("gRPC: {} ({}:{})", line->message, line->file, line->line);
  });
}

}  // namespace ps
