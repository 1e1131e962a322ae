/* queue.c: see queue.h. */
#include "queue.h"

#include "base/alloc.h"

void qn_queue_free(qn_queue *q)
{
    qn_free(q->lanes);
    *q = (qn_queue){0};
}

qn_status qn_queue_lanes(qn_queue *q, size_t count)
{
    if (count <= q->lane_count)
        return QN_OK;
    qn_lane *lanes = qn_reallocarray(NULL, count, sizeof *lanes);
    if (!lanes)
        return QN_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        lanes[i] = i < q->lane_count ? q->lanes[i] : (qn_lane){0};
        if (!lanes[i].first)
            lanes[i].last = &lanes[i].first;
    }
    qn_free(q->lanes);
    q->lanes = lanes;
    q->lane_count = count;
    return QN_OK;
}

static bool is_active(const qn_lane *lane)
{
    return lane->first || lane->running;
}

/* A lane that becomes active starts level with the others. */
static void level(qn_queue *q, qn_lane *lane)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < q->lane_count; i++)
        if (is_active(&q->lanes[i]) && q->lanes[i].served < least)
            least = q->lanes[i].served;
    if (least != UINT64_MAX && lane->served < least)
        lane->served = least;
}

void qn_queue_add(qn_queue *q, qn_place *place)
{
    qn_lane *lane = &q->lanes[place->lane];
    if (!is_active(lane))
        level(q, lane);
    place->next = NULL;
    *lane->last = place;
    lane->last = &place->next;
    q->count++;
}

qn_place *qn_queue_next(const qn_queue *q, size_t most)
{
    const qn_lane *best = NULL;
    for (size_t i = 0; i < q->lane_count; i++) {
        const qn_lane *lane = &q->lanes[i];
        if (lane->first && (!most || lane->running < most) &&
            (!best || lane->served < best->served))
            best = lane;
    }
    return best ? best->first : NULL;
}

bool qn_queue_remove(qn_queue *q, qn_place *place)
{
    if (place->lane >= q->lane_count)
        return false;
    qn_lane *lane = &q->lanes[place->lane];
    qn_place **at = &lane->first;
    while (*at && *at != place)
        at = &(*at)->next;
    if (!*at)
        return false;
    *at = place->next;
    if (!*at)
        lane->last = at;
    q->count--;
    return true;
}

void qn_queue_begin(qn_queue *q, size_t lane)
{
    q->lanes[lane].running++;
}

void qn_queue_charge(qn_queue *q, size_t lane, uint64_t tokens)
{
    q->lanes[lane].served += tokens;
}

void qn_queue_end(qn_queue *q, size_t lane)
{
    q->lanes[lane].running--;
}
