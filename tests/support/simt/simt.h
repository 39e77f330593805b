/* Runs the kernels of backends/kernels/ on the CPU, one after another, so that what they compute,
 * and what they rely on, can be tested where there is no GPU.
 *
 * The very sources are compiled as C++ (kernel.h says how); a lane is a fiber. Lanes run one at a
 * time, each until it waits for others (a barrier, a shuffle, a matrix product), in an order that
 * is shuffled from a seed, as blocks are; so a result that rests on who comes first differs from
 * seed to seed. What one lane may see of another late or never is made so:
 *   - shared memory is full of NaNs when a block begins
 *   - asynchronous copies arrive when they are waited for, or at once, by chance
 * Errors of a kernel (lanes that wait for one another, or for one that has ended; a barrier left
 * out by some; a misaligned or foreign address; writing beyond the shared memory that was asked
 * for; ending without sl_grid_wait()) end the program, with the kernel, block and lane.
 *
 * HIP's kernels have waves, whose lanes go on together: while one warp of a wave waits in a loop
 * for what others write, the other one does not run, unless it is on its way to that loop as well.
 * All of a wave come to the same barrier of the block. Kernels that need less together are found
 * so.
 *
 * Not emulated: memory that is slow to become visible between blocks (fences do nothing), kernels
 * that overlap, and blocks that wait for other blocks of their grid. */
#ifndef SL_TESTS_SUPPORT_SIMT_H
#define SL_TESTS_SUPPORT_SIMT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIMT_LANES          32u
#define SIMT_MAX_THREADS    1024u
#define SIMT_VALUE_BYTES    32u /* that a lane shows its warp at a time */
#define SIMT_DYNAMIC_SHARED 232448u

struct simt_dim {
    unsigned x, y, z;
};

/* A kernel by its name, as the compiler found it. */
struct simt_kernel {
    const char *name; /* "sl_k_fill" */
    void (*run)(const void *args);
    size_t args_bytes;
};
/* table.cc: what backends/kernels/families.h lists. run is NULL where the sources lack it. */
extern const struct simt_kernel simt_kernels[];
extern const size_t simt_n_kernels;

/* Runs all blocks of a grid. Threads may call, one at a time.
 * SIMT_SEED (environment): another order of lanes and blocks. SIMT_TRACE=1: each launch to stderr.
 * SIMT_MEET=1: a block's threads meet in sl_grid_wait(), as machine_hip.cuh has it; each once. */
void simt_launch(const struct simt_kernel *kernel, struct simt_dim grid, struct simt_dim block,
                 size_t shared_bytes, const void *args);

/* What kernels call. */
extern struct simt_place { struct simt_dim thread, block, block_dim, grid_dim; } simt_place;

/* Waits for all threads of the block that have not ended; *any, *all: of the values given. file and
 * line: of the call. */
void simt_block(int value, int *any, int *all, const char *file, int line);
/* Waits at barrier `id` for `threads` threads. */
void simt_meet(uint32_t id, uint32_t threads);
/* Waits for the lanes in mask, which must be all of the warp. Each gets all lanes' values,
 * SIMT_VALUE_BYTES apart, until it calls this again. what: for messages, and to see that all do the
 * same. */
const void *simt_warp(uint32_t mask, const char *what, const void *value, size_t bytes);
uint32_t simt_lane(void);

/* Waves have 32 lanes or, of HIP's kernels, 64, two warps: as SIMT_WAVE (environment) says, 64
 * without it. */
uint32_t simt_wave_lanes(void);
/* Of HIP's kernels alone. */
uint32_t simt_wave_lane(void);
/* A loop that looks at memory until another thread has written it: each time before it looks, and
 * when it has not been. */
void simt_look(void);
void simt_spin(void);
/* Before an operation that other threads may wait for. */
void simt_atomic(void);
uint32_t simt_chance(void); /* any bits */

/* Asynchronous copies; `bytes` of from, then zeros up to `room`. */
void simt_copy(void *to, const void *from, uint32_t bytes, uint32_t room);
void simt_copy_commit(void);
void simt_copy_wait(uint32_t but); /* for all batches but so many of the last */

void simt_grid_wait(void);
/* Shared memory as a number of 32 bits, and back. */
uint32_t simt_shared_address(const void *shared);
void *simt_shared_at(uint32_t address);
/* Ends the program with a message that says which lane of which block of which kernel it was. */
__attribute__((noreturn)) void simt_fault(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif

#endif
