/* core/clock.h - the three times, in milliseconds. */
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

#include <stdint.h>

int64_t clock_wall_ms(void); /* since 1970; may jump: for people, never for ordering */
int64_t clock_mono_ms(void); /* for deadlines inside one process */
int64_t clock_boot_ms(void); /* since boot, suspend included; compares within one boot */
void clock_sleep_ms(int ms); /* the whole time, whatever signals arrive */

#endif
