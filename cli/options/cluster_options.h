/* The machines that a command is told to use: connected to, before it plans. */
#ifndef SL_CLI_CLUSTER_OPTIONS_H
#define SL_CLI_CLUSTER_OPTIONS_H

#include "cli/options/engine_options.h"
#include "model/arch/model.h"

struct sl_net_key;
struct sl_cluster;

/* A command's use of other machines; zero-initialise. */
struct sl_cluster_use {
    struct sl_net_key *key;
    struct sl_cluster *cluster;
    char *addresses, *spares; /* the cluster's strings lie in them */
};

/* The key of --key-file or of SLUICE_CLUSTER_KEY; *out_key NULL with --plain. SL_ERR_CONFIG: there
 * is none, or it cannot be used, with what to do. */
enum sl_status sl_cluster_key(const struct sl_engine_options *o, struct sl_net_key **out_key,
                              struct sl_err *err) SL_MUST_CHECK;
/* Connects to the workers that o names, if any, and gives them to config. */
enum sl_status sl_cluster_use(const struct sl_engine_options *o, const struct sl_model *model,
                              struct sl_cluster_use *use, struct sl_engine_config *config,
                              struct sl_err *err) SL_MUST_CHECK;
/* Before leaving, where nothing came of it: the workers' logs say why, too. */
void sl_cluster_say_why(struct sl_cluster_use *use, enum sl_status status,
                        const struct sl_err *why);
/* After the engine. */
void sl_cluster_leave(struct sl_cluster_use *use);

#endif
