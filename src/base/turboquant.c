/* turboquant.c: tables and one head vector at a time, as turboquant.h defines.
 *
 * Each arithmetic operation here is one rounding to float32: this file must be
 * compiled without contraction (the build's rule, -ffp-contract=off), or a
 * square would fuse into the sum of squares and a scale into the first
 * butterfly. */
#include "turboquant.h"

#include <math.h>
#include <stdio.h>

/* Floats by their bits. */
#define TABLE(name, size)                                                      \
    static const union {                                                       \
        uint32_t bits[size];                                                   \
        float value[size];                                                     \
    } name

/* ---- signs ----
 *
 * Bit b of word w is 1 where element 32 w + b is -1. */

static const uint32_t signs_64[] = {0xB769548E, 0x62DE4802};

static const uint32_t signs_128[] = {0x6A39DF0D, 0x6A9C0250, 0x4A8337D5,
                                     0x146059DE};

static const uint32_t signs_256[] = {0x62E63012, 0x10CD4A11, 0xA96D146F,
                                     0xD39C5EC9, 0x3A2FF29B, 0xB2275D73,
                                     0x5730D96B, 0xFE8BC357};

static const uint32_t signs_512[] = {
    0x70364BBD, 0x62FBE30D, 0xD439E463, 0x5CCAD261, 0x9B477C8F, 0xE9DD1243,
    0x542ADE30, 0x77BACABA, 0x11873E84, 0x9A4C1518, 0x3204A3C5, 0x5D81721F,
    0x8A821452, 0x8EA79BC2, 0x520E4BEF, 0x296B9D6D};

/* ---- codebooks ----
 *
 * Centroids of the cells of a standard normal number, ascending, and the
 * boundaries between cells.  They are part of the format: a better fit under
 * the same name would decode old caches wrongly. */

TABLE(centroids_2, 4) = {{0xBFC1DA51, 0xBEEA9C7F, 0x3EE5B322, 0x3FC18E33}};

TABLE(boundaries_2, 3) = {{0xBF7C8171, 0xBB9D2BA0, 0x3F7AFAFC}};

TABLE(centroids_3, 8) = {{0xC009B98C, 0xBFAC053E, 0xBF4189DF, 0xBE7AF8DF,
                          0x3E7AF8DF, 0x3F4189DF, 0x3FAC053E, 0x4009B98C}};

TABLE(boundaries_3, 7) = {{0xBFDFBC2C, 0xBF866517, 0xBF00240B, 0x00000000,
                           0x3F00240B, 0x3F866517, 0x3FDFBC2C}};

TABLE(centroids_4, 16) = {{0xC031009E, 0xC0065E96, 0xBFD1F1D9, 0xBFA3689C,
                           0xBF75D2E4, 0xBF2C5247, 0xBECEC14D, 0xBE12270F,
                           0x3DEFF31B, 0x3EC217D8, 0x3F25C7A6, 0x3F6F0C0F,
                           0x3FA04B9D, 0x3FCF95EA, 0x4004D90F, 0x402E2068}};

TABLE(boundaries_4,
      15) = {{0xC01BAF9A, 0xBFEF5782, 0xBFBAAD3A, 0xBF8F2907, 0xBF511296,
              0xBF09D977, 0xBE8BEA6A, 0xBC516C0C, 0x3E7E149F, 0x3F0369C9,
              0x3F4A69DA, 0x3F8BE8D2, 0x3FB7F0C4, 0x3FECA404, 0x40197CBC}};

TABLE(centroids_5, 32) = {
    {0xC05648FB, 0xC03190E6, 0xC01912F3, 0xC005AB0E, 0xBFEB4CA3, 0xBFD04D08,
     0xBFB7E9F5, 0xBFA145C8, 0xBF8C4568, 0xBF70F0C5, 0xBF4B1108, 0xBF26A1AD,
     0xBF02E5F1, 0xBEBF583D, 0xBE73046F, 0xBDD28363, 0x3D023ABA, 0x3E2823AA,
     0x3E99A6CA, 0x3EE10BB7, 0x3F14B0FD, 0x3F3A42B3, 0x3F5FB7AF, 0x3F83C350,
     0x3F98DD89, 0x3FAFBA38, 0x3FC8A89D, 0x3FE3B262, 0x400170DD, 0x4013CF1B,
     0x402AA581, 0x404EE8A0}};

TABLE(boundaries_5, 31) = {
    {0xC043ECF0, 0xC02551EC, 0xC00F5F00, 0xBFFB5160, 0xBFDDCCD6, 0xBFC41B7E,
     0xBFAC97DE, 0xBF96C598, 0xBF825EE5, 0xBF5E00E6, 0xBF38D95A, 0xBF14C3CF,
     0xBEE29210, 0xBE9C6D3A, 0xBE2E2310, 0xBD116606, 0x3DC8B258, 0x3E6DB89F,
     0x3EBD5940, 0x3F029B6C, 0x3F2779D8, 0x3F4CFD31, 0x3F739F28, 0x3F8E506C,
     0x3FA44BE0, 0x3FBC316A, 0x3FD62D80, 0x3FF34A0E, 0x400A9FFC, 0x401F3A4E,
     0x403CC710}};

TABLE(centroids_8, 256) = {
    {0xC0902E85, 0xC08E8C3C, 0xC08DF60E, 0xC08CD9D2, 0xC08B9FA9, 0xC08AA15C,
     0xC0898520, 0xC08868E4, 0xC0874CA9, 0xC086306E, 0xC0851432, 0xC083F7F6,
     0xC08305A2, 0xC08176DA, 0xC0801579, 0xC08011CA, 0xC07C5027, 0xC07AACE1,
     0xC078B98F, 0xC0764198, 0xC0732098, 0xC070D19F, 0xC06FA623, 0xC06D3ED7,
     0xC06B2D00, 0xC0686A42, 0xC06614AD, 0xC06522EE, 0xC0628E95, 0xC0603EF3,
     0xC05DE5E6, 0xC05B6717, 0xC0597AEE, 0xC0573D93, 0xC054F537, 0xC052AFB5,
     0xC0507F90, 0xC04E1611, 0xC04C59D0, 0xC04A1030, 0xC04727C6, 0xC04541AF,
     0xC0433DB1, 0xC040F2AA, 0xC03EBAEC, 0xC03C92A9, 0xC03A50F2, 0xC037FB6F,
     0xC035D6AA, 0xC033972E, 0xC0316351, 0xC02F34DB, 0xC02CFCAC, 0xC02A75E7,
     0xC028581C, 0xC0266024, 0xC023E5C4, 0xC0219E1C, 0xC01FAA0F, 0xC01D8727,
     0xC01B22F8, 0xC018D13E, 0xC0166ED4, 0xC0143FE0, 0xC012126E, 0xC00F9802,
     0xC00D6D4C, 0xC00B5504, 0xC009430B, 0xC00720AD, 0xC00508FE, 0xC002D8FF,
     0xC00068BD, 0xBFFC24B0, 0xBFF70D7B, 0xBFF25365, 0xBFEDF2E2, 0xBFE91D6E,
     0xBFE476FC, 0xBFDF8EE8, 0xBFDAEC71, 0xBFD6501B, 0xBFD1D70E, 0xBFCD5191,
     0xBFC910AF, 0xBFC4AD9B, 0xBFC074DD, 0xBFBC0DEE, 0xBFB7B03B, 0xBFB37B51,
     0xBFAF381C, 0xBFAAF496, 0xBFA6A2DB, 0xBFA28A03, 0xBF9E25EC, 0xBF99C09C,
     0xBF954EDF, 0xBF90B463, 0xBF8C478B, 0xBF87DD07, 0xBF8384E7, 0xBF7E7890,
     0xBF75FF43, 0xBF6D6921, 0xBF6495A3, 0xBF5BFE1E, 0xBF537E67, 0xBF4B32D3,
     0xBF424292, 0xBF3916A4, 0xBF2FE7BC, 0xBF26DAB3, 0xBF1DC2AB, 0xBF14C658,
     0xBF0BD825, 0xBF02D94B, 0xBEF33B34, 0xBEE0FF0D, 0xBECF59D8, 0xBEBD5900,
     0xBEAB141F, 0xBE992FAC, 0xBE878087, 0xBE6D3FCC, 0xBE4CF085, 0xBE2B3A58,
     0xBE095B74, 0xBDCD78E4, 0xBD8695C1, 0xBD004D8A, 0x3B8E4E46, 0x3D255D98,
     0x3D989B5B, 0x3DDC6576, 0x3E0FCE35, 0x3E327376, 0x3E551F93, 0x3E78E0A2,
     0x3E8E526E, 0x3EA140B7, 0x3EB3A74A, 0x3EC65E85, 0x3ED8377E, 0x3EE9EA30,
     0x3EFB8983, 0x3F0691E0, 0x3F0F01E6, 0x3F174E94, 0x3F1FFD11, 0x3F28D4A3,
     0x3F31BC91, 0x3F3A5436, 0x3F433054, 0x3F4BDFE3, 0x3F54BBAE, 0x3F5D4C7D,
     0x3F65EA4D, 0x3F6E9929, 0x3F7774B2, 0x3F8016ED, 0x3F84668B, 0x3F88B64D,
     0x3F8D09C4, 0x3F915A26, 0x3F95D9D4, 0x3F9A185F, 0x3F9E92D9, 0x3FA32077,
     0x3FA7B4F9, 0x3FAC0C15, 0x3FB04084, 0x3FB45F8B, 0x3FB8A283, 0x3FBD0FE1,
     0x3FC1A216, 0x3FC62BAA, 0x3FCABD64, 0x3FCF45E2, 0x3FD3E426, 0x3FD8A2FC,
     0x3FDD18BF, 0x3FE1851A, 0x3FE63751, 0x3FEADFFA, 0x3FEF8314, 0x3FF3FE97,
     0x3FF8AB36, 0x3FFD87A6, 0x40010DDC, 0x40032FEE, 0x40055A62, 0x4007A269,
     0x4009F572, 0x400C25C3, 0x400E64FB, 0x40107709, 0x4012D6C0, 0x40152D4A,
     0x401755C2, 0x40197AE0, 0x401BC051, 0x401DE7DC, 0x402037A4, 0x402249FE,
     0x40248EDE, 0x4026D894, 0x4028FB22, 0x402B13AE, 0x402D67F9, 0x402FB2C3,
     0x4031E2AA, 0x403421DC, 0x40368427, 0x4038A7F4, 0x403ADBEB, 0x403D1E66,
     0x403F3431, 0x4041601D, 0x4043F239, 0x40468B8B, 0x40494FE0, 0x404B08DF,
     0x404D220F, 0x404F37DB, 0x40511E24, 0x40534AF3, 0x405568E6, 0x4057A752,
     0x405A0A83, 0x405C4A63, 0x405DACAE, 0x406028AE, 0x4063407C, 0x4064CBB7,
     0x4066B3D8, 0x4068F885, 0x406C54C6, 0x406DE922, 0x406FEC5F, 0x4073102C,
     0x407444FA, 0x4076D230, 0x40790375, 0x407AFD91, 0x407E561E, 0x408049C2,
     0x4080F2A9, 0x40828BC4, 0x40832B1F, 0x4084475B, 0x408586CD, 0x4086593E,
     0x40879C0D, 0x4088B849, 0x4089D485, 0x408AF0C0}};

TABLE(boundaries_8, 255) = {
    {0xC08F5D60, 0xC08E4125, 0xC08D67F0, 0xC08C3CBE, 0xC08B2082, 0xC08A133E,
     0xC088F702, 0xC087DAC6, 0xC086BE8C, 0xC085A250, 0xC0848614, 0xC0837ECC,
     0xC0823E3E, 0xC080C62A, 0xC08013A2, 0xC07E39DE, 0xC07B7E84, 0xC079B338,
     0xC0777D94, 0xC074B118, 0xC071F91C, 0xC0703BE1, 0xC06E727D, 0xC06C35EC,
     0xC069CBA1, 0xC0673F78, 0xC0659BCE, 0xC063D8C2, 0xC06166C4, 0xC05F126C,
     0xC05CA67E, 0xC05A7102, 0xC0585C40, 0xC0561965, 0xC053D276, 0xC05197A2,
     0xC04F4AD0, 0xC04D37F0, 0xC04B3500, 0xC0489BFB, 0xC04634BA, 0xC0443FB0,
     0xC042182E, 0xC03FD6CB, 0xC03DA6CA, 0xC03B71CE, 0xC0392630, 0xC036E90C,
     0xC034B6EC, 0xC0327D40, 0xC0304C16, 0xC02E18C4, 0xC02BB94A, 0xC0296702,
     0xC0275C20, 0xC02522F4, 0xC022C1F0, 0xC020A416, 0xC01E989B, 0xC01C5510,
     0xC019FA1B, 0xC017A009, 0xC015575A, 0xC0132927, 0xC010D538, 0xC00E82A7,
     0xC00C6128, 0xC00A4C08, 0xC00831DC, 0xC00614D6, 0xC003F0FE, 0xC001A0DE,
     0xBFFE7B15, 0xBFF99916, 0xBFF4B070, 0xBFF02324, 0xBFEB8828, 0xBFE6CA35,
     0xBFE202F2, 0xBFDD3DAC, 0xBFD89E46, 0xBFD41394, 0xBFCF9450, 0xBFCB3120,
     0xBFC6DF25, 0xBFC2913C, 0xBFBE4166, 0xBFB9DF14, 0xBFB595C6, 0xBFB159B6,
     0xBFAD1659, 0xBFA8CBB8, 0xBFA4966F, 0xBFA057F8, 0xBF9BF344, 0xBF9787BE,
     0xBF9301A1, 0xBF8E7DF7, 0xBF8A1249, 0xBF85B0F7, 0xBF816098, 0xBF7A3BEA,
     0xBF71B432, 0xBF68FF62, 0xBF6049E0, 0xBF57BE42, 0xBF4F589D, 0xBF46BAB2,
     0xBF3DAC9B, 0xBF347F30, 0xBF2B6138, 0xBF224EAF, 0xBF194482, 0xBF104F3E,
     0xBF0758B8, 0xBEFC76E5, 0xBEEA1D20, 0xBED82C72, 0xBEC6596C, 0xBEB43690,
     0xBEA221E6, 0xBE90581A, 0xBE7E206D, 0xBE5D1828, 0xBE3C156E, 0xBE1A4AE6,
     0xBDF017E6, 0xBDAA0752, 0xBD46BC86, 0xBC5D0782, 0x3CB72761, 0x3D6B4A27,
     0x3DBA8068, 0x3DFE00F0, 0x3E2120D6, 0x3E43C984, 0x3E67001A, 0x3E856160,
     0x3E97C992, 0x3EAA7400, 0x3EBD02E8, 0x3ECF4B02, 0x3EE110D7, 0x3EF2B9DA,
     0x3F022B51, 0x3F0AC9E3, 0x3F13283D, 0x3F1BA5D2, 0x3F2468DA, 0x3F2D489A,
     0x3F360864, 0x3F3EC245, 0x3F47881C, 0x3F504DC8, 0x3F590416, 0x3F619B65,
     0x3F6A41BB, 0x3F7306EE, 0x3F7BD146, 0x3F823EBC, 0x3F868E6C, 0x3F8AE008,
     0x3F8F31F5, 0x3F9399FD, 0x3F97F91A, 0x3F9C559C, 0x3FA0D9A8, 0x3FA56AB8,
     0x3FA9E087, 0x3FAE264C, 0x3FB25008, 0x3FB68107, 0x3FBAD932, 0x3FBF58FC,
     0x3FC3E6E0, 0x3FC87487, 0x3FCD01A3, 0x3FD19504, 0x3FD64391, 0x3FDADDDE,
     0x3FDF4EEC, 0x3FE3DE36, 0x3FE88BA6, 0x3FED3187, 0x3FF1C0D6, 0x3FF654E6,
     0x3FFB196E, 0x3FFFD1AF, 0x40021EE5, 0x40044528, 0x40067E66, 0x4008CBEE,
     0x400B0D9A, 0x400D455F, 0x400F6E02, 0x4011A6E4, 0x40140205, 0x40164186,
     0x40186851, 0x401A9D98, 0x401CD416, 0x401F0FC0, 0x402140D1, 0x40236C6E,
     0x4025B3B9, 0x4027E9DB, 0x402A0768, 0x402C3DD4, 0x402E8D5E, 0x4030CAB6,
     0x40330243, 0x40355302, 0x4037960E, 0x4039C1F0, 0x403BFD28, 0x403E294C,
     0x40404A27, 0x4042A92B, 0x40453EE2, 0x4047EDB6, 0x404A2C60, 0x404C1577,
     0x404E2CF5, 0x40502B00, 0x4052348C, 0x405459EC, 0x4056881C, 0x4058D8EA,
     0x405B2A73, 0x405CFB88, 0x405EEAAE, 0x4061B495, 0x4064061A, 0x4065BFC8,
     0x4067D62E, 0x406AA6A6, 0x406D1EF4, 0x406EEAC0, 0x40717E46, 0x4073AA93,
     0x40758B95, 0x4077EAD2, 0x407A0083, 0x407CA9D8, 0x407F74D1, 0x40809E36,
     0x4081BF36, 0x4082DB72, 0x4083B93D, 0x4084E714, 0x4085F006, 0x4086FAA6,
     0x40882A2B, 0x40894667, 0x408A62A2}};

/* ---- what there is ---- */

bool qn_tq_has_dim(int d)
{
    return d == 64 || d == 128 || d == 256 || d == 512;
}

bool qn_tq_has_key_bits(int bits)
{
    return bits == 2 || bits == 4 || bits == 5 || bits == 8;
}

bool qn_tq_has_value_bits(int bits)
{
    return bits == 3 || qn_tq_has_key_bits(bits);
}

bool qn_tq_has_group(int group)
{
    return group == 32 || group == 64;
}

qn_status qn_tq_check_dim(const char *op, int d)
{
    if (qn_tq_has_dim(d))
        return QN_OK;
    return qn_fail(QN_E_ARG, "[%s] head_dim must be " QN_TQ_DIMS ", found %d.",
                   op, d);
}

qn_status qn_tq_check_key_bits(const char *op, int bits)
{
    if (qn_tq_has_key_bits(bits))
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[%s] key_bits must be " QN_TQ_KEY_BITS ", found %d.", op,
                   bits);
}

qn_status qn_tq_check_value_bits(const char *op, int bits)
{
    if (qn_tq_has_value_bits(bits))
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[%s] value_bits must be " QN_TQ_VALUE_BITS ", found %d.",
                   op, bits);
}

qn_status qn_tq_check_group(const char *op, int d, int group)
{
    if (group > 0 && d % group)
        return qn_fail(QN_E_ARG,
                       "[%s] head_dim %d is not a multiple of group_size %d.",
                       op, d, group);
    if (qn_tq_has_group(group))
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[%s] group_size must be 32 or 64, found %d for a head_dim "
                   "of %d.",
                   op, group, d);
}

/* "[1, 2, 3]" */
static const char *shape_text(char out[64], const int *shape, size_t ndim)
{
    size_t at = (size_t)snprintf(out, 64, "[");
    for (size_t i = 0; i < ndim && at < 48; i++)
        at += (size_t)snprintf(out + at, 64 - at, i ? ", %d" : "%d", shape[i]);
    snprintf(out + at, 64 - at, "]");
    return out;
}

qn_status qn_tq_check_pair(const char *op, const int *keys, size_t key_ndim,
                           const int *values, size_t value_ndim)
{
    char a[64], b[64];
    if (key_ndim == 4 && value_ndim == 4 &&
        !memcmp(keys, values, 4 * sizeof *keys))
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[%s] Keys and values must have one shape [B, H, N, D], "
                   "found %s and %s.",
                   op, shape_text(a, keys, key_ndim),
                   shape_text(b, values, value_ndim));
}

const uint32_t *qn_tq_signs(int d)
{
    return d == 64    ? signs_64
           : d == 128 ? signs_128
           : d == 256 ? signs_256
                      : signs_512;
}

const float *qn_tq_centroids(int bits)
{
    return bits == 2   ? centroids_2.value
           : bits == 3 ? centroids_3.value
           : bits == 4 ? centroids_4.value
           : bits == 5 ? centroids_5.value
                       : centroids_8.value;
}

const float *qn_tq_boundaries(int bits)
{
    return bits == 2   ? boundaries_2.value
           : bits == 3 ? boundaries_3.value
           : bits == 4 ? boundaries_4.value
           : bits == 5 ? boundaries_5.value
                       : boundaries_8.value;
}

float qn_tq_norm(int d)
{
    return d == 64    ? 0x1p-3f
           : d == 128 ? 0x1.6a09e6p-4f
           : d == 256 ? 0x1p-4f
                      : 0x1.6a09e6p-5f;
}

/* ---- rotation ---- */

/* Neighbours first: float sums depend on the order. */
static void transform(float *y, int d)
{
    for (int h = 1; h < d; h *= 2)
        for (int i = 0; i < d; i += 2 * h)
            for (int j = i; j < i + h; j++) {
                float a = y[j], b = y[j + h];
                y[j] = a + b;
                y[j + h] = a - b;
            }
    float norm = qn_tq_norm(d);
    for (int i = 0; i < d; i++)
        y[i] *= norm;
}

static bool is_negative(const uint32_t *signs, int i)
{
    return signs[i / 32] >> (i % 32) & 1;
}

void qn_tq_sign_floats(float *out, int d)
{
    const uint32_t *signs = qn_tq_signs(d);
    for (int i = 0; i < d; i++)
        out[i] = is_negative(signs, i) ? -1.0f : 1.0f;
}

static void flip(float *y, const float *x, int d)
{
    const uint32_t *signs = qn_tq_signs(d);
    for (int i = 0; i < d; i++)
        y[i] = is_negative(signs, i) ? -x[i] : x[i];
}

void qn_tq_rotate(float *y, const float *x, int d)
{
    flip(y, x, d);
    transform(y, d);
}

void qn_tq_unrotate(float *y, const float *x, int d)
{
    if (y != x)
        memcpy(y, x, (size_t)d * sizeof *y);
    transform(y, d);
    flip(y, y, d);
}

/* ---- keys ---- */

qn_tq_grid qn_tq_grid_of(float low, float high, int bits)
{
    bool is_signed = bits == 8;
    qn_tq_grid g = {.low = low, .high = high};
    g.most = is_signed ? 127.0f : (float)((1 << bits) - 1);
    g.least = is_signed ? -127.0f : 0.0f;
    g.scale = fabsf(high - low) / (is_signed ? 254.0f : g.most);
    g.divide = g.scale + QN_TQ_EPSILON;
    g.zero = is_signed ? (high + low) / (2.0f * g.divide) : low / g.divide;
    /* + 0 makes -0 a 0, whichever zero the minimum was. */
    g.zero = rintf(g.zero) + 0.0f;
    return g;
}

/* Whether decoding the stored pair would give NaN or zeros for a group of
 * ordinary numbers. */
static bool is_lost(const qn_tq_grid *g, uint16_t scale, uint16_t zero)
{
    return isfinite(g->low) && isfinite(g->high) &&
           ((scale == 0 && (g->low != 0 || g->high != 0)) ||
            (zero & 0x7c00) == 0x7c00);
}

/* The group as its midpoint: a decoder makes plus or minus the scale of it. */
static void store_midpoint(uint16_t *scale, uint16_t *zero, uint8_t *codes,
                           const qn_tq_grid *g, int group)
{
    float middle = 0.5f * g->low + 0.5f * g->high;
    bool up = middle >= 0, is_signed = g->least < 0;
    *scale = qn_tq_half(fminf(fabsf(middle), 65504.0f));
    *zero = is_signed || up ? 0 : 0xbc00; /* 0 or -1 */
    memset(codes, up ? 1 : is_signed ? 0xff : 0, (size_t)group);
}

bool qn_tq_grid_store(uint16_t *scale, uint16_t *zero, uint8_t *codes,
                      const qn_tq_grid *g, int group, bool guard)
{
    *scale = qn_tq_half(g->scale);
    *zero = qn_tq_half(g->zero);
    if (!guard || !is_lost(g, *scale, *zero))
        return false;
    store_midpoint(scale, zero, codes, g, group);
    return true;
}

static qn_tq_grid grid_of(const float *x, int group, int bits)
{
    float low = x[0], high = x[0];
    for (int i = 1; i < group; i++) {
        /* Once NaN, it stays: comparisons with it are false. */
        if (x[i] < low || isnan(x[i]))
            low = x[i];
        if (x[i] > high || isnan(x[i]))
            high = x[i];
    }
    return qn_tq_grid_of(low, high, bits);
}

/* Through int, so that a NaN (code 0) never meets an undefined conversion. */
static uint8_t code_of(float q, const qn_tq_grid *g)
{
    if (isnan(q))
        return 0;
    return (uint8_t)(int)(q < g->least ? g->least : q > g->most ? g->most : q);
}

void qn_tq_encode_key(uint8_t *codes, uint16_t *scale, uint16_t *zero,
                      const float *x, int d, int bits, int group, bool guard)
{
    for (int i = 0; i < d; i += group, x += group, codes += group) {
        qn_tq_grid g = grid_of(x, group, bits);
        if (qn_tq_grid_store(scale++, zero++, codes, &g, group, guard))
            continue;
        for (int j = 0; j < group; j++)
            codes[j] = code_of(rintf(x[j] / g.divide - g.zero), &g);
    }
}

void qn_tq_decode_key(float *y, const uint8_t *codes, const float *scale,
                      const float *zero, int d, int bits, int group)
{
    for (int i = 0; i < d; i++) {
        float code = bits == 8 ? (float)(int8_t)codes[i] : (float)codes[i];
        y[i] = (code + zero[i / group]) * scale[i / group];
    }
}

/* ---- values ---- */

/* Of squares: the upper half onto the lower until one is left. */
static float square_sum(const float *y, int group)
{
    float s[64];
    for (int i = 0; i < group; i++)
        s[i] = y[i] * y[i];
    for (int n = group / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            s[i] += s[i + n];
    return s[0];
}

/* How many boundaries lie below n; none of them below a NaN. */
static uint8_t cell_of(float n, const float *boundaries, int bits)
{
    int at = 0;
    for (int step = 1 << bits >> 1; step; step /= 2)
        if (n > boundaries[at + step - 1])
            at += step;
    return (uint8_t)at;
}

void qn_tq_encode_value(uint8_t *codes, uint16_t *scale, const float *x, int d,
                        int bits, int group)
{
    float y[QN_TQ_MAX_DIM];
    const float *boundaries = qn_tq_boundaries(bits);
    qn_tq_rotate(y, x, d);
    for (int i = 0; i < d; i += group) {
        float rms = sqrtf(square_sum(y + i, group) * (1.0f / (float)group));
        for (int j = i; j < i + group; j++)
            codes[j] = cell_of(y[j] / (rms + QN_TQ_EPSILON), boundaries, bits);
        scale[i / group] = qn_tq_half(rms);
    }
}

void qn_tq_decode_value(float *y, const uint8_t *codes, const float *scale,
                        int d, int bits, int group)
{
    const float *centroids = qn_tq_centroids(bits);
    for (int i = 0; i < d; i++)
        y[i] = centroids[codes[i]] * scale[i / group];
}

/* ---- packing ---- */

void qn_tq_pack(uint8_t *out, const uint8_t *codes, int d, int bits)
{
    uint32_t word = 0;
    int have = 0;
    for (int i = 0; i < d; i++) {
        word |= (codes[i] & ((1u << bits) - 1)) << have;
        for (have += bits; have >= 8; have -= 8) {
            *out++ = (uint8_t)word;
            word >>= 8;
        }
    }
}

void qn_tq_unpack(uint8_t *codes, const uint8_t *packed, int d, int bits)
{
    uint32_t word = 0;
    int have = 0;
    for (int i = 0; i < d; i++) {
        /* A byte is read when it is needed, so never one past the end. */
        if (have < bits) {
            word |= (uint32_t)*packed++ << have;
            have += 8;
        }
        codes[i] = (uint8_t)(word & ((1u << bits) - 1));
        word >>= bits;
        have -= bits;
    }
}
