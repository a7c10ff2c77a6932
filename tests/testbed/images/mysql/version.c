/* version.so: makes a MySQL server report another version.
 *
 * There is one MySQL release to test with; an upgrade between two images must be visible in the version. The server has no
 * option for it, but its version is a global array, which is set while options are read and used from the first
 * connection on. listen() lies between the two.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { SERVER_VERSION_LENGTH = 60 };

int listen(int socket, int backlog) {
    static int (*real_listen)(int, int);
    if (!real_listen) {
        real_listen = (int (*)(int, int))dlsym(RTLD_NEXT, "listen");
        char *version = dlsym(RTLD_DEFAULT, "server_version");
        const char *wanted = getenv("MYSQLD_VERSION");
        if (version && wanted && strlen(wanted) < SERVER_VERSION_LENGTH) {
            strcpy(version, wanted);
        }
    }
    return real_listen(socket, backlog);
}
