// The program with PyTorch: every command of nereus, with those that compute on devices.
#include "nereus/app/cli/app.h"
#include "nereus/app/driver/check.h"
#include "nereus/app/driver/export.h"
#include "nereus/app/driver/train.h"
#include "nereus/app/driver/try_transition.h"

int main(int argc, char** argv) {
  return nereus::run_command_line(argc, argv,
                                  {.train = nereus::train,
                                   .check = nereus::check,
                                   .export_run = nereus::export_run,
                                   .try_transition = nereus::try_transition});
}
