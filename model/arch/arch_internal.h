/* Between the files that read an architecture's keys. */
#ifndef SL_MODEL_ARCH_INTERNAL_H
#define SL_MODEL_ARCH_INTERNAL_H

#include "model/arch/arch.h"
#include "model/arch/arch_keys.h"

/* Limits far above any model, so that later products fit 32 bits and buffers stay sane. */
#define SL_ARCH_MAX_WIDTH    (1u << 20) /* n_embd, n_ff, heads * head_dim */
#define SL_ARCH_MAX_HEAD_DIM 4096u

/* arch_layers.c: the specs of layers [hp->n_layer], hp->n_expert and hp->n_expert_used. Of hp
 * n_layer, n_embd and n_ctx_train are known. */
enum sl_status sl_arch_read_layers(struct sl_keys *k, const struct sl_arch *arch,
                                   struct sl_hparams *hp, struct sl_layer *layers) SL_MUST_CHECK;
/* arch_delta.c: which layers have a gated delta net, and its shape. */
enum sl_status sl_arch_read_delta(struct sl_keys *k, const struct sl_arch *arch,
                                  const struct sl_hparams *hp,
                                  struct sl_layer *layers) SL_MUST_CHECK;
/* arch_mamba.c: the shape of layers that are SL_MIXER_MAMBA, from keys "ssm.*". */
enum sl_status sl_arch_read_mamba(struct sl_keys *k, const struct sl_hparams *hp,
                                  struct sl_layer *layers) SL_MUST_CHECK;
/* rope.dimension_sections, when it is there. Sections turn frequencies by a picture's time, height
 * or width, which are one and the same for text, and what is in none by time: so text needs no more
 * of them than that they make sense. */
enum sl_status sl_arch_check_sections(struct sl_keys *k, uint32_t n_rot) SL_MUST_CHECK;

/* arch_kda.c: the shape of Kimi Delta Attention, of as many heads as latent attention has. */
enum sl_status sl_arch_read_kda(struct sl_keys *k, const struct sl_hparams *hp,
                                struct sl_layer *layers) SL_MUST_CHECK;
/* arch_limits.c: limits of SwiGLU, of each layer. */
enum sl_status sl_arch_read_limits(struct sl_keys *k, const struct sl_hparams *hp,
                                   struct sl_layer *layers) SL_MUST_CHECK;

/* arch_latent.c: the shapes of latent attention; its scale, when hp.rope[0] is known. */
enum sl_status sl_arch_read_latent(struct sl_keys *k, const struct sl_arch *arch,
                                   const struct sl_hparams *hp,
                                   struct sl_layer *layers) SL_MUST_CHECK;
enum sl_status sl_arch_scale_latent(struct sl_keys *k, const struct sl_arch *arch,
                                    struct sl_hparams *hp, struct sl_layer *layers) SL_MUST_CHECK;
/* Heads of a width that buffers have room for. */
enum sl_status sl_arch_check_latent(struct sl_keys *k,
                                    const struct sl_latent_spec *c) SL_MUST_CHECK;
/* arch_indexer.c: the indexer of every layer. neox: how its heads are rotated. */
enum sl_status sl_arch_read_indexer(struct sl_keys *k, const struct sl_hparams *hp, bool neox,
                                    struct sl_layer *layers) SL_MUST_CHECK;
/* The function where expert_gating_func is missing, in its numbers. */
uint32_t sl_arch_latent_gating(const struct sl_keys *k, const struct sl_hparams *hp);

#endif
