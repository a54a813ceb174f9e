// The program that users start: plans, explains and shows help without PyTorch, and hands what
// needs tensors to nereus-runtime.
#include "nereus/app/cli/app.h"
#include "nereus/app/cli/hand_over.h"

int main(int argc, char** argv) {
  return nereus::run_command_line(argc, argv, nereus::handed_over(nereus::runtime_program(), argv));
}
