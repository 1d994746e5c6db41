#include "server/rpc/admin_service.h"

#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/net/border_stats.h"
#include "spdlog/spdlog.h"

namespace evenshard {
UnaryReactor* AdminService::GetStats(CallContext* context, const MessageBytes* request,
                                     MessageBytes* response) {
  return AnswerUnary<GetStatsRequest, ShardStats>(
      context, *request, response,
      [this](const GetStatsRequest& stats) -> absl::StatusOr<ShardStats> {
        ASSIGN_OR_RETURN(
            ShardStats answer,
            host_->Stats(stats.has_slot() ? static_cast<int>(stats.slot()) : process_));
        FillBorder(listener_, config_.proto(), &answer);
        return answer;
      });
}

UnaryReactor* AdminService::GetView(CallContext* context, const MessageBytes* request,
                                    MessageBytes* response) {
  return AnswerUnary<GetViewRequest, View>(context, *request, response,
                                           [this](const GetViewRequest&) {
                                             View view = host_->view();
                                             view.clear_declaration();  // see GetDeclaration
                                             return view;
                                           });
}

UnaryReactor* AdminService::GetDeclaration(CallContext* context, const MessageBytes* request,
                                           MessageBytes* response) {
  return AnswerUnary<GetDeclarationRequest, Declaration>(
      context, *request, response,
      [this](const GetDeclarationRequest&) -> absl::StatusOr<Declaration> {
        if (config_.is_from_workers()) return config_.declaration();
        return absl::FailedPreconditionError(
            "the config has the model; only that of model.from_workers is declared");
      });
}

UnaryReactor* AdminService::Shutdown(CallContext* context, const MessageBytes* request,
                                     MessageBytes* response) {
  return AnswerUnary<ShutdownRequest, ShutdownResponse>(
      context, *request, response, [&](const ShutdownRequest&) {
        spdlog::info("{} asks for shutdown", Printable(context->peer()));
        request_shutdown_();
        return ShutdownResponse();
      });
}

}  // namespace evenshard
