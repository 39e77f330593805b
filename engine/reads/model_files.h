/* The files of a model, and their mirrors, as a reader has them. */
#ifndef SL_ENGINE_MODEL_FILES_H
#define SL_ENGINE_MODEL_FILES_H

#include "engine/types/config.h"
#include "model/gguf/gguf.h"
#include "streaming/reader.h"

/* The queue that the configuration asks for: what reads experts, and what reads rows of tables. */
struct sl_reader_config sl_model_reader_config(const struct sl_engine_config *config);

/* Adds them to a reader, file i of the model as its file i. SL_ERR_CORRUPT: a file has another size
 * than when the model was opened. A mirror that differs or cannot be read is left out with a
 * warning. */
enum sl_status sl_model_files_add(struct sl_reader *reader, const struct sl_engine_config *config,
                                  const struct sl_gguf *gguf, struct sl_err *err) SL_MUST_CHECK;
/* Opens a reader with them: the configuration's reader_source, or the real one. */
enum sl_status sl_model_files_open(const struct sl_gguf *gguf,
                                   const struct sl_engine_config *config,
                                   const struct sl_reader_config *queue,
                                   struct sl_reader **out_reader, struct sl_err *err) SL_MUST_CHECK;
/* Whether every mirror that config names has the model's files, as far as their sizes tell; opens
 * none. SL_ERR_IO, SL_ERR_CORRUPT: which has not. Any thread. */
enum sl_status sl_model_files_check_mirrors(const struct sl_gguf *gguf,
                                            const struct sl_engine_config *config,
                                            struct sl_err *err) SL_MUST_CHECK;

/* What has been read, and which copies were found changed, when the files were looked at last. */
struct sl_file_watch {
    uint64_t seen_ended, seen_changed;
};
/* Are all files what was opened, if anything was read since the last look? SL_ERR_CORRUPT: no.
 * SL_AGAIN: a mirror was not and has been dropped: whatever was read and kept must be forgotten,
 * and read again. */
enum sl_status sl_file_watch_look(struct sl_file_watch *w, struct sl_reader *reader,
                                  struct sl_err *err) SL_MUST_CHECK;

#endif
