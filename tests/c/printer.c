/* A printer at a free port of this host, raw TCP, for so many jobs as the argument says. It says
 * its port, then what it prints: lines as they come, whoever sends them. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST 64

int main(int argc, char **argv)
{
    struct pollfd polled[MOST + 1];
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int jobs = argc == 2 ? atoi(argv[1]) : 0, count = 0;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, MOST) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0) {
        perror("printer");
        return 1;
    }
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    while (jobs > 0) {
        int i;
        polled[count].fd = listener;
        polled[count].events = POLLIN;
        if (poll(polled, (nfds_t)count + 1, -1) < 0) {
            perror("printer");
            return 1;
        }
        if (polled[count].revents != 0 && count < MOST) {
            polled[count].fd = accept(listener, NULL, NULL);
            polled[count].revents = 0;
            count++;
        }
        for (i = 0; i < count; i++) {
            char bytes[512];
            ssize_t got;
            if (polled[i].revents == 0) {
                continue;
            }
            got = read(polled[i].fd, bytes, sizeof bytes);
            if (got > 0) {
                fwrite(bytes, 1, (size_t)got, stdout);
            } else {
                close(polled[i].fd);
                polled[i--] = polled[--count];
                jobs--;
            }
        }
    }
    return 0;
}
