// In front of a function of work-groups that finds fp16 in some of its buffers, where others find floats: the frame defines
// NAME_IS, F16 or F32, for each buffer NAME. Arithmetic stays that of floats. Four numbers are two words, and no function
// stores fewer: neighbours never write into one word. What fp16 does not reach becomes its largest number: as an infinity, a
// mask of attention would make a row of NaN.
#undef LOAD
#undef LOAD4
#undef STORE4
#define LOAD(buffer, i) JOIN(LOAD, buffer##_IS)(buffer, i)
#define LOAD4(buffer, i) JOIN(LOAD4, buffer##_IS)(buffer, i)
#define STORE4(buffer, i, value) JOIN(STORE4, buffer##_IS)(buffer, i, value)
#define LOAD_F16(buffer, i) stored_halves2(LOAD_WORD(buffer, (i) / 2) >> (uint)((i) % 2 * 16)).x
#define LOAD4_F16(buffer, i) stored_halves4(LOAD_WORDS2(buffer, (i) / 2))
#define STORE4_F16(buffer, i, value) { \
    const float4 wide = clamp4(value, -65504.0f, 65504.0f); \
    STORE_WORD(buffer, (i) / 2, halves_to_store(wide.x, wide.y)); \
    STORE_WORD(buffer, (i) / 2 + 1, halves_to_store(wide.z, wide.w)); \
}
// The two numbers of a word, the first in its low half, by the conversion of the device; and the nearest ones, ties to even.
#if defined(__NVPTX__)
static inline float2 stored_halves2(uint word)
{
    float first, second;
    __asm__("cvt.f32.f16 %0, %1;" : "=f"(first) : "h"((ushort)word));
    __asm__("cvt.f32.f16 %0, %1;" : "=f"(second) : "h"((ushort)(word >> 16)));
    return (float2)(first, second);
}
static inline uint halves_to_store(float first, float second)
{
    ushort low, high;
    __asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(low) : "f"(first));
    __asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(high) : "f"(second));
    return (uint)low | (uint)high << 16;
}
#elif defined(IN_WGSL)
static inline float2 stored_halves2(uint word) { return unpack_halves(word); }
static inline uint halves_to_store(float first, float second) { return pair_F16(first, second); }
#else
static inline float2 stored_halves2(uint word) { return vload_half2(0, (const __private half *)&word); }
static inline uint halves_to_store(float first, float second)
{
    uint word;
    vstore_half2_rte((float2)(first, second), 0, (__private half *)&word);
    return word;
}
#endif
static inline float4 stored_halves4(uint2 words)
{
    const float2 low = stored_halves2(words.x), high = stored_halves2(words.y);
    return VEC4(low.x, low.y, high.x, high.y);
}
