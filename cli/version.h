#ifndef SL_CLI_VERSION_H
#define SL_CLI_VERSION_H

#define SL_VERSION "0.1.0"

#endif
