#include "nereus/app/cli/app.h"

int main(int argc, char** argv) { return nereus::run_command_line(argc, argv); }
