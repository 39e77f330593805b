/* The commands of the program. Each takes argv from its own name on and returns the exit code:
 * 0 success, 1 failure, 2 usage error. */
#ifndef SL_CLI_COMMANDS_H
#define SL_CLI_COMMANDS_H

int sl_cmd_serve(int argc, char **argv);
int sl_cmd_run(int argc, char **argv);
int sl_cmd_plan(int argc, char **argv);
int sl_cmd_devices(int argc, char **argv);
int sl_cmd_inspect(int argc, char **argv);
int sl_cmd_tokenize(int argc, char **argv);
int sl_cmd_score(int argc, char **argv);
int sl_cmd_bench(int argc, char **argv);
int sl_cmd_synth(int argc, char **argv);
int sl_cmd_pull(int argc, char **argv);
int sl_cmd_health(int argc, char **argv);
int sl_cmd_worker(int argc, char **argv);
int sl_cmd_keygen(int argc, char **argv);
int sl_cmd_doctor(int argc, char **argv);

#endif
