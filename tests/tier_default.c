#include "runner.h"

const bool runner_is_long = false;
