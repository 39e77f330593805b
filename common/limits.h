/* Limits that are checked when a model is opened, and on which ops rely. */
#ifndef SL_COMMON_LIMITS_H
#define SL_COMMON_LIMITS_H

#define SL_MAX_EXPERTS      1024u /* routed experts of a layer */
#define SL_MAX_EXPERTS_USED 64u   /* experts of a token: the router's top-k */
#define SL_MAX_ATTENDED     64u   /* streams of a row that residual attention reads */

#endif
