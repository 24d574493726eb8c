/* Preloaded by tests: a flush of a file fails while the file named by FF_TEST_FSYNC names it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int refused(int fd) {
    const char *control = getenv("FF_TEST_FSYNC");
    char link[64], path[4096], wanted[4096];
    if (control == NULL) return 0;
    int file = open(control, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = read(file, wanted, sizeof wanted - 1);
    close(file);
    if (length <= 0) return 0;
    wanted[length] = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t found = readlink(link, path, sizeof path - 1);
    if (found < 0) return 0;
    path[found] = 0;
    return strcmp(path, wanted) == 0;
}

int fsync(int fd) {
    static int (*real)(int);
    if (real == NULL) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    if (refused(fd)) return errno = EIO, -1;
    return real(fd);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (real == NULL) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (refused(fd)) return errno = EIO, -1;
    return real(fd);
}
