/* A plan of several machines as one table, a column for each. */
#ifndef SL_CLI_PLAN_COLUMNS_H
#define SL_CLI_PLAN_COLUMNS_H

#include "engine/types/plan.h"

#include <stdio.h>

/* Of so many machines, 80 characters wide; more have a further table. */
#define SL_PLAN_COLUMNS 4u

/* What each machine's devices and its process take, and its budgets. */
void sl_plan_columns_print(FILE *out, const struct sl_memory_plan *p);

#endif
