/* What the bits of a device's results depend on besides its inputs. */
#ifndef SL_ENGINE_ARITHMETIC_H
#define SL_ENGINE_ARITHMETIC_H

#include "backends/backend.h"
#include "common/siphash.h"

/* One hash of the arithmetic's id and version (caps.arithmetic), the version of this process's C
 * library and, where the arithmetic has no version, this very program. Two devices with the same
 * hash give the same bits for the same ops, also in different processes. */
struct sl_hash128 sl_arithmetic_hash(const struct sl_device *dev);
/* Do both devices of this process give the same bits for the same ops? */
bool sl_devices_alike(const struct sl_device *a, const struct sl_device *b);

#endif
