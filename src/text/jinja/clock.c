/* clock.c: one directive at a time; names in English. */
#include "clock.h"

#include "run.h"

#include <stdio.h>

static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};
static const char *const months[] = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};

/* A number in `width` digits: zeros in front by default, blanks for '_',
 * nothing for '-'. */
static void put_number(qn_jbuild *b, long value, int width, char fill,
                       char flag)
{
    char text[32];
    if (flag == '_')
        fill = ' ';
    else if (flag == '0')
        fill = '0';
    if (flag == '-')
        snprintf(text, sizeof text, "%ld", value);
    else if (fill == ' ')
        snprintf(text, sizeof text, "%*ld", width, value);
    else
        snprintf(text, sizeof text, "%0*ld", width, value);
    qn_jbuild_text(b, text, false);
}

static void put_name(qn_jbuild *b, const char *const *names, int count, int i,
                     bool shortened, char flag)
{
    if (i < 0 || i >= count) {
        qn_jbuild_text(b, "?", false);
        return;
    }
    size_t size = shortened ? 3 : strlen(names[i]);
    for (size_t k = 0; k < size; k++) {
        char c = names[i][k];
        if (flag == '^' && c >= 'a' && c <= 'z')
            c = (char)(c - 32);
        qn_jbuild_add(b, (qn_str){&c, 1}, false);
    }
}

static void put_literal(qn_jbuild *b, const char *format, const struct tm *time,
                        long nanoseconds)
{
    qn_jstr text = {.data = format,
                    .size = (uint32_t)strlen(format),
                    .chars = (uint32_t)strlen(format)};
    qn_jclock_format(b, &text, time, nanoseconds);
}

/* The ISO 8601 week; the year it belongs to in *year. */
static int iso_week(const struct tm *t, int *year)
{
    int weekday = (t->tm_wday + 6) % 7; /* Monday is 0 */
    int week = (t->tm_yday - weekday + 10) / 7;
    *year = t->tm_year + 1900;
    if (week == 0) {
        --*year;
        int y = *year;
        bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
        return (t->tm_yday + 365 + leap - weekday + 10) / 7;
    }
    bool leap = (*year % 4 == 0 && *year % 100 != 0) || *year % 400 == 0;
    if (week == 53 && t->tm_yday - weekday + 3 >= 365 + leap) {
        ++*year;
        return 1;
    }
    return week;
}

/* One directive; false when there is none of that letter. */
static bool put_directive(qn_jbuild *b, char letter, char flag,
                          const struct tm *t, long ns)
{
    int hour12 = t->tm_hour % 12 ? t->tm_hour % 12 : 12, year;
    int week = iso_week(t, &year);
    switch (letter) {
    case 'a':
        put_name(b, days, 7, t->tm_wday, true, flag);
        return true;
    case 'A':
        put_name(b, days, 7, t->tm_wday, false, flag);
        return true;
    case 'b':
    case 'h':
        put_name(b, months, 12, t->tm_mon, true, flag);
        return true;
    case 'B':
        put_name(b, months, 12, t->tm_mon, false, flag);
        return true;
    case 'c':
        put_literal(b, "%a %b %e %H:%M:%S %Y", t, ns);
        return true;
    case 'C':
        put_number(b, (t->tm_year + 1900) / 100, 2, '0', flag);
        return true;
    case 'd':
        put_number(b, t->tm_mday, 2, '0', flag);
        return true;
    case 'D':
    case 'x':
        put_literal(b, "%m/%d/%y", t, ns);
        return true;
    case 'e':
        put_number(b, t->tm_mday, 2, ' ', flag);
        return true;
    case 'f':
        put_number(b, ns / 1000, 6, '0', '\0');
        return true;
    case 'F':
        put_literal(b, "%Y-%m-%d", t, ns);
        return true;
    case 'G':
        put_number(b, year, 4, '0', flag);
        return true;
    case 'g':
        put_number(b, year % 100, 2, '0', flag);
        return true;
    case 'H':
        put_number(b, t->tm_hour, 2, '0', flag);
        return true;
    case 'I':
        put_number(b, hour12, 2, '0', flag);
        return true;
    case 'j':
        put_number(b, t->tm_yday + 1, 3, '0', flag);
        return true;
    case 'k':
        put_number(b, t->tm_hour, 2, ' ', flag);
        return true;
    case 'l':
        put_number(b, hour12, 2, ' ', flag);
        return true;
    case 'm':
        put_number(b, t->tm_mon + 1, 2, '0', flag);
        return true;
    case 'M':
        put_number(b, t->tm_min, 2, '0', flag);
        return true;
    case 'n':
        qn_jbuild_text(b, "\n", false);
        return true;
    case 'p':
        qn_jbuild_text(b, t->tm_hour < 12 ? "AM" : "PM", false);
        return true;
    case 'P':
        qn_jbuild_text(b, t->tm_hour < 12 ? "am" : "pm", false);
        return true;
    case 'r':
        put_literal(b, "%I:%M:%S %p", t, ns);
        return true;
    case 'R':
        put_literal(b, "%H:%M", t, ns);
        return true;
    case 's': {
        struct tm copy = *t;
        put_number(b, (long)mktime(&copy), 1, '0', flag);
        return true;
    }
    case 'S':
        put_number(b, t->tm_sec, 2, '0', flag);
        return true;
    case 't':
        qn_jbuild_text(b, "\t", false);
        return true;
    case 'T':
    case 'X':
        put_literal(b, "%H:%M:%S", t, ns);
        return true;
    case 'u':
        put_number(b, t->tm_wday ? t->tm_wday : 7, 1, '0', flag);
        return true;
    case 'U':
        put_number(b, (t->tm_yday + 7 - t->tm_wday) / 7, 2, '0', flag);
        return true;
    case 'V':
        put_number(b, week, 2, '0', flag);
        return true;
    case 'w':
        put_number(b, t->tm_wday, 1, '0', flag);
        return true;
    case 'W':
        put_number(b, (t->tm_yday + 7 - (t->tm_wday + 6) % 7) / 7, 2, '0',
                   flag);
        return true;
    case 'y':
        put_number(b, t->tm_year % 100, 2, '0', flag);
        return true;
    case 'Y':
        put_number(b, t->tm_year + 1900L, 1, '0', flag);
        return true;
    case 'z': /* Python's local times know no zone */
    case 'Z':
        return true;
    case '%':
        qn_jbuild_text(b, "%", false);
        return true;
    default:
        return false;
    }
}

void qn_jclock_format(qn_jbuild *b, const qn_jstr *format,
                      const struct tm *time, long nanoseconds)
{
    size_t done = 0;
    for (size_t at = 0; at + 1 < format->size && qn_jrun_step(b->run, 1);
         at++) {
        if (format->data[at] != '%')
            continue;
        size_t letter = at + 1;
        char flag = '\0';
        if (strchr("-_0^", format->data[letter]) && format->data[letter] &&
            letter + 1 < format->size)
            flag = format->data[letter++];
        qn_jbuild_slice(b, format, done, at);
        if (put_directive(b, format->data[letter], flag, time, nanoseconds))
            done = letter + 1;
        else
            done = at; /* stays as it is */
        at = letter;
    }
    qn_jbuild_slice(b, format, done, format->size);
}
