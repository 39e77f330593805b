/* The tiers that an expert can be in, the slowest first. */
#ifndef SL_COMMON_TIER_H
#define SL_COMMON_TIER_H

enum sl_tier { SL_TIER_DISK, SL_TIER_HOST, SL_TIER_DEVICE };

#endif
