/* QuickJS-ng as a module that can reach nothing but the functions it imports from `host`.
 *
 * `init` runs while the module is built: realm and prelude are made then, and a snapshot of the memory is
 * what a worker starts from. The other exports follow the worker's loop: `begin` a script, `run` what can
 * run, ask whether it `ended`, and in between `settle` an answer or tell that a timer is `due`.
 *
 * Nothing here is a wall: whoever takes over this engine still sits inside the module's memory, and every
 * pointer that goes out is checked by the other side.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "prelude.h"
#include "quickjs.h"

#define EXPORT(name) __attribute__((export_name(name)))
#define IMPORT(name) __attribute__((import_module("host"), import_name(name)))

/* -- what the other side gives us ------------------------------------------------------------------ */

/* The number of the question, or -1 for an operation that does not exist. */
IMPORT("request") int32_t host_request(int32_t op, const char *text, size_t length);
IMPORT("log") void host_log(int32_t level, const char *text, size_t length);
/* A total that is not a number is none; so is a message at address 0. */
IMPORT("progress") void host_progress(double value, double total, const char *text, size_t length);
IMPORT("timer") int32_t host_timer(double milliseconds);
IMPORT("clear") void host_clear(int32_t number);
IMPORT("random") void host_random(void *out, size_t length);
IMPORT("sha256") void host_sha256(const void *bytes, size_t length, void *out);
/* How a script ended, in pieces: the value, or what was thrown. */
IMPORT("say") void host_say(int32_t what, const char *text, size_t length);

enum { SAY_VALUE, SAY_NAME, SAY_MESSAGE, SAY_STACK, SAY_TOOL };

/* What an export answers. */
enum {
    GOES_ON = 0,
    RETURNED = 1,        /* the value was said */
    THREW = 2,           /* name, message, stack and perhaps the tool's error were said */
    MEMORY = 3,          /* out of memory, and nothing is left to say how */
    MEMORY_SAID = 4,     /* out of memory, said as above */
    TOO_LONG = 5,        /* the value is longer than allowed; its length was said in digits */
    BROKEN = 6,          /* the prelude answered with nonsense */
};

/* -- heap ------------------------------------------------------------------------------------------ */

/* Heap beyond the limit, for saying what went wrong when it struck. */
#define RESERVE (4u * 1024 * 1024)

static size_t heap_limit = SIZE_MAX;
static size_t heap_used = 0;
/* Whether an allocation was refused since the script began. */
static int heap_refused = 0;

/* As wasi-libc has it; the engine asks for it as well. */
extern size_t malloc_usable_size(void *);

static int heap_has_room(size_t size)
{
    if (size <= heap_limit && heap_used <= heap_limit - size)
        return 1;
    heap_refused = 1;
    return 0;
}

static void *heap_took(void *made)
{
    if (made)
        heap_used += malloc_usable_size(made);
    else
        heap_refused = 1;
    return made;
}

static void *heap_malloc(void *opaque, size_t size)
{
    return heap_has_room(size) ? heap_took(malloc(size)) : NULL;
}

static void *heap_calloc(void *opaque, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size)
        return NULL;
    return heap_has_room(count * size) ? heap_took(calloc(count, size)) : NULL;
}

static void heap_free(void *opaque, void *made)
{
    if (!made)
        return;
    heap_used -= malloc_usable_size(made);
    free(made);
}

static void *heap_realloc(void *opaque, void *made, size_t size)
{
    if (!made)
        return heap_malloc(opaque, size);
    size_t before = malloc_usable_size(made);
    if (size > before && !heap_has_room(size - before))
        return NULL;
    void *moved = realloc(made, size);
    if (!moved) {
        heap_refused = 1;
        return NULL;
    }
    heap_used -= before;
    return heap_took(moved);
}

static size_t heap_usable(const void *made)
{
    return malloc_usable_size((void *)made);
}

static const JSMallocFunctions heap = { heap_calloc, heap_malloc, heap_free, heap_realloc, heap_usable };

/* -- the realm ------------------------------------------------------------------------------------- */

static JSRuntime *runtime;
static JSContext *context;
static JSValue limits, natives;
/* What the prelude returned, held here and not by the realm. */
static JSValue prelude_begin, prelude_settle, prelude_due, prelude_describe, prelude_encode, prelude_rejected;
static JSValue script = JS_UNDEFINED;
/* Whether a job ended for want of memory; it may have been one that had to tell the script's promises. */
static int starved = 0;
static uint64_t dice = 0x9e3779b97f4a7c15u;

static JSValue own_code(const struct source *source)
{
    return JS_Eval(context, source->text, source->length, PRELUDE_FILE, JS_EVAL_TYPE_GLOBAL);
}

/* -- natives: what the prelude expects, name by name -------------------------------------------------- */

static JSValue native_request(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    int32_t op;
    size_t length;
    if (JS_ToInt32(ctx, &op, argv[0]))
        return JS_EXCEPTION;
    const char *text = JS_ToCStringLen(ctx, &length, argv[1]);
    if (!text)
        return JS_EXCEPTION;
    int32_t number = host_request(op, text, length);
    JS_FreeCString(ctx, text);
    if (number < 0)
        return JS_ThrowTypeError(ctx, "no such operation");
    return JS_NewInt32(ctx, number);
}

static JSValue native_log(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    int32_t level;
    size_t length;
    if (JS_ToInt32(ctx, &level, argv[0]))
        return JS_EXCEPTION;
    const char *text = JS_ToCStringLen(ctx, &length, argv[1]);
    if (!text)
        return JS_EXCEPTION;
    host_log(level, text, length);
    JS_FreeCString(ctx, text);
    return JS_UNDEFINED;
}

static JSValue native_progress(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    double value, total = NAN;
    size_t length = 0;
    const char *text = NULL;
    if (JS_ToFloat64(ctx, &value, argv[0]))
        return JS_EXCEPTION;
    if (!JS_IsUndefined(argv[1]) && JS_ToFloat64(ctx, &total, argv[1]))
        return JS_EXCEPTION;
    if (!JS_IsUndefined(argv[2]) && !(text = JS_ToCStringLen(ctx, &length, argv[2])))
        return JS_EXCEPTION;
    host_progress(value, total, text, length);
    if (text)
        JS_FreeCString(ctx, text);
    return JS_UNDEFINED;
}

static JSValue native_timer(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    double delay;
    if (JS_ToFloat64(ctx, &delay, argv[0]))
        return JS_EXCEPTION;
    return JS_NewInt32(ctx, host_timer(delay));
}

static JSValue native_clear(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    int32_t number;
    if (JS_ToInt32(ctx, &number, argv[0]))
        return JS_EXCEPTION;
    host_clear(number);
    return JS_UNDEFINED;
}

static JSValue native_part(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    const char *name = JS_ToCString(ctx, argv[0]);
    if (!name)
        return JS_EXCEPTION;
    const struct source *found = NULL;
    for (size_t i = 0; i < sizeof(prelude_parts) / sizeof(*prelude_parts); i++)
        if (!strcmp(prelude_parts[i].name, name))
            found = &prelude_parts[i];
    JS_FreeCString(ctx, name);
    return found ? own_code(found) : JS_ThrowTypeError(ctx, "no such part");
}

static JSValue native_random(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    static uint8_t bytes[65536];
    uint32_t count;
    if (JS_ToUint32(ctx, &count, argv[0]))
        return JS_EXCEPTION;
    if (count > sizeof(bytes))
        count = sizeof(bytes);
    host_random(bytes, count);
    return JS_NewUint8ArrayCopy(ctx, bytes, count);
}

/* Bytes as the prelude hands them over: an array of them, or a text of hexadecimal digits. To be freed. */
static uint8_t *bytes_of(JSContext *ctx, JSValueConst value, size_t *length)
{
    uint8_t *bytes;
    size_t count;
    if (JS_IsString(value)) {
        const char *digits = JS_ToCStringLen(ctx, &count, value);
        if (!digits)
            return NULL;
        *length = count / 2;
        if ((bytes = js_malloc(ctx, count / 2 + 1)))
            for (size_t i = 0; i < count / 2; i++) {
                int high = digits[2 * i], low = digits[2 * i + 1];
                high = high >= 'a' ? high - 'a' + 10 : high - '0';
                low = low >= 'a' ? low - 'a' + 10 : low - '0';
                bytes[i] = (uint8_t)((high << 4) | (low & 15));
            }
        JS_FreeCString(ctx, digits);
        return bytes;
    }
    uint8_t *inside = JS_GetUint8Array(ctx, &count, value);
    if (!inside && count)
        return NULL;
    *length = count;
    if ((bytes = js_malloc(ctx, count + 1)) && count)
        memcpy(bytes, inside, count);
    return bytes;
}

static JSValue native_sha256(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    size_t length = 0;
    uint8_t sum[32], *bytes = bytes_of(ctx, argv[0], &length);
    if (!bytes)
        return JS_EXCEPTION;
    host_sha256(bytes, length, sum);
    js_free(ctx, bytes);
    return JS_NewUint8ArrayCopy(ctx, sum, sizeof(sum));
}

static JSValue native_encode(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    size_t length;
    const char *text = JS_ToCStringLen(ctx, &length, argv[0]);
    if (!text)
        return JS_EXCEPTION;
    JSValue bytes = JS_NewUint8ArrayCopy(ctx, (const uint8_t *)text, length);
    JS_FreeCString(ctx, text);
    return bytes;
}

/* The length of the character at `at`, or minus the number of bytes that stand for nothing, as the
 * standard counts them: the longest beginning of a character, and at least one. */
static int character(const uint8_t *at, size_t left)
{
    uint8_t first = at[0], low = 0x80, high = 0xbf;
    int length;
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        length = 2;
    else if (first >= 0xe0 && first <= 0xef) {
        length = 3;
        if (first == 0xe0)
            low = 0xa0;
        if (first == 0xed)
            high = 0x9f;
    } else if (first >= 0xf0 && first <= 0xf4) {
        length = 4;
        if (first == 0xf0)
            low = 0x90;
        if (first == 0xf4)
            high = 0x8f;
    } else
        return -1;
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= left || at[i] < low || at[i] > high)
            return -i;
        low = 0x80;
        high = 0xbf;
    }
    return length;
}

static JSValue native_decode(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    size_t length = 0, written = 0;
    int fatal = JS_ToBool(ctx, argv[1]);
    uint8_t *bytes = bytes_of(ctx, argv[0], &length);
    if (!bytes)
        return JS_EXCEPTION;
    /* Each byte that stands for nothing becomes three, U+FFFD. */
    char *text = length > SIZE_MAX / 4 ? NULL : js_malloc(ctx, 3 * length + 1);
    JSValue made = JS_EXCEPTION;
    for (size_t at = 0; text && at < length;) {
        int step = character(bytes + at, length - at);
        if (step < 0 && fatal) {
            made = JS_UNDEFINED;
            goto done;
        }
        memcpy(text + written, step < 0 ? (const uint8_t *)"\xef\xbf\xbd" : bytes + at, step < 0 ? 3 : step);
        written += step < 0 ? 3 : step;
        at += step < 0 ? -step : step;
    }
    if (text)
        made = JS_NewStringLen(ctx, text, written);
done:
    js_free(ctx, bytes);
    js_free(ctx, text);
    return made;
}

/* The engine's own numbers come from a state that is part of the snapshot: every run would see the same. */
static JSValue native_dice(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    dice ^= dice >> 12;
    dice ^= dice << 25;
    dice ^= dice >> 27;
    return JS_NewFloat64(ctx, (double)((dice * 0x2545f4914f6cdd1du) >> 11) / 9007199254740992.0);
}

static const struct { const char *name; JSCFunction *function; int length; } functions[] = {
    { "request", native_request, 2 }, { "log", native_log, 2 }, { "progress", native_progress, 3 },
    { "timer", native_timer, 1 }, { "clear", native_clear, 1 }, { "part", native_part, 1 },
    { "random", native_random, 1 }, { "sha256", native_sha256, 1 }, { "encode", native_encode, 1 },
    { "decode", native_decode, 2 },
};

/* -- while the module is built ----------------------------------------------------------------------- */

/* A snapshot of half a realm would be found out by every user of it, so the build fails instead. */
static JSValue sure(JSValue value)
{
    if (JS_IsException(value))
        __builtin_trap();
    return value;
}

/* A promise failed and nobody waits for it, or somebody does after all. */
static void rejection(JSContext *ctx, JSValueConst promise, JSValueConst reason, bool handled, void *opaque)
{
    JSValueConst given[3] = { promise, reason, JS_NewBool(ctx, handled) };
    JSValue told = JS_Call(ctx, prelude_rejected, JS_UNDEFINED, 3, given);
    /* There was no memory to remember it in. It must not be taken for an error of the script. */
    if (JS_IsException(told))
        JS_FreeValue(ctx, JS_GetException(ctx));
    JS_FreeValue(ctx, told);
}

EXPORT("init") void init(void)
{
    runtime = JS_NewRuntime2(&heap, NULL);
    if (!runtime)
        __builtin_trap();
    context = JS_NewContext(runtime);
    if (!context)
        __builtin_trap();
    JSValue global = JS_GetGlobalObject(context);
    JSValue math = sure(JS_GetPropertyStr(context, global, "Math"));
    JS_DefinePropertyValueStr(context, math, "random", JS_NewCFunction(context, native_dice, "random", 0),
                              JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE);
    natives = sure(JS_NewObject(context));
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
        JS_SetPropertyStr(context, natives, functions[i].name,
                          JS_NewCFunction(context, functions[i].function, functions[i].name, functions[i].length));
    limits = sure(JS_NewObject(context));
    JSValue core = sure(own_code(&prelude_core));
    JSValueConst given[2] = { natives, limits };
    JSValue parts = sure(JS_Call(context, core, JS_UNDEFINED, 2, given));
    JSValue *kept[6] = { &prelude_begin, &prelude_settle, &prelude_due, &prelude_describe, &prelude_encode,
                         &prelude_rejected };
    for (uint32_t i = 0; i < 6; i++) {
        *kept[i] = sure(JS_GetPropertyUint32(context, parts, i));
        if (!JS_IsFunction(context, *kept[i]))
            __builtin_trap();
    }
    JS_SetHostPromiseRejectionTracker(runtime, rejection, NULL);
    JS_FreeValue(context, parts);
    JS_FreeValue(context, core);
    JS_FreeValue(context, math);
    JS_FreeValue(context, global);
    JS_RunGC(runtime);
}

/* -- how something ends -------------------------------------------------------------------------------- */

static int say(int32_t what, JSValueConst value)
{
    size_t length;
    const char *text = JS_ToCStringLen(context, &length, value);
    if (!text)
        return 0;
    host_say(what, text, length);
    JS_FreeCString(context, text);
    return 1;
}

static int is_out_of_memory(JSValueConst thrown)
{
    if (!JS_IsError(thrown))
        return JS_IsUninitialized(thrown) || (JS_IsNull(thrown) && heap_refused);
    int is = 0;
    JSValue message = JS_GetPropertyStr(context, thrown, "message");
    const char *text = JS_IsString(message) ? JS_ToCString(context, message) : NULL;
    if (text) {
        /* The second is the engine's message when there is no memory for the one it wanted. */
        is = !strncmp(text, "out of memory", 13) || (heap_refused && !strcmp(text, "Invalid error message"));
        JS_FreeCString(context, text);
    }
    JS_FreeValue(context, message);
    if (JS_HasException(context))
        JS_FreeValue(context, JS_GetException(context));
    return is;
}

/* Says what was thrown last. */
static int threw(void)
{
    JSValue thrown = JS_GetException(context);
    if (heap_limit < SIZE_MAX - RESERVE)
        heap_limit += RESERVE;
    int memory = is_out_of_memory(thrown);
    if (memory && JS_IsNull(thrown))
        return MEMORY;
    JSValueConst given[1] = { thrown };
    JSValue parts = JS_Call(context, prelude_describe, JS_UNDEFINED, 1, given);
    JS_FreeValue(context, thrown);
    int said = !JS_IsException(parts);
    for (uint32_t i = 0; said && i < 4; i++) {
        JSValue part = JS_GetPropertyUint32(context, parts, i);
        if (!JS_IsNull(part))
            said = !JS_IsException(part) && say(SAY_NAME + (int32_t)i, part);
        JS_FreeValue(context, part);
    }
    JS_FreeValue(context, parts);
    if (!said)
        return MEMORY;
    return memory ? MEMORY_SAID : THREW;
}

static int called(JSValue value)
{
    if (JS_IsException(value))
        return threw();
    JS_FreeValue(context, value);
    return GOES_ON;
}

/* -- the worker's side -------------------------------------------------------------------------------- */

/* Room for a text from outside; whatever takes the text frees it. Not counted as heap of the script. */
EXPORT("alloc") void *alloc(size_t length)
{
    return malloc(length + 1);
}

/* Whether memory ran out where the script could not be told. */
EXPORT("ran_out") int ran_out(void)
{
    return starved;
}

/* Parses a text from outside, and frees it. */
static JSValue parsed(char *text, size_t length)
{
    text[length] = 0;
    JSValue value = JS_ParseJSON(context, text, length, "answer");
    free(text);
    return value;
}

static void set_limits(JSValueConst given)
{
    JSPropertyEnum *names;
    uint32_t count;
    if (JS_GetOwnPropertyNames(context, &names, &count, given, JS_GPN_STRING_MASK))
        return;
    for (uint32_t i = 0; i < count; i++)
        JS_SetProperty(context, limits, names[i].atom, JS_GetProperty(context, given, names[i].atom));
    JS_FreePropertyEnum(context, names, count);
}

/* The job is an object of `servers`, `sleep`, `result` and `limits`; the source a function to be called. */
EXPORT("begin") int begin(char *job, size_t job_length, char *source, size_t source_length,
                          const char *file, size_t heap_most, size_t stack_most)
{
    JS_UpdateStackTop(runtime);
    JS_SetMaxStackSize(runtime, stack_most);
    host_random(&dice, sizeof(dice));
    dice |= 1;
    heap_limit = heap_most;
    heap_refused = 0;
    JSValue given = parsed(job, job_length);
    if (JS_IsException(given))
        return threw();
    JSValue bounds = JS_GetPropertyStr(context, given, "limits");
    set_limits(bounds);
    JS_FreeValue(context, bounds);
    JSValue words[3] = {
        JS_GetPropertyStr(context, given, "servers"),
        JS_GetPropertyStr(context, given, "sleep"),
        JS_GetPropertyStr(context, given, "result"),
    };
    JS_FreeValue(context, given);
    int state = called(JS_Call(context, prelude_begin, JS_UNDEFINED, 3, (JSValueConst *)words));
    for (int i = 0; i < 3; i++)
        JS_FreeValue(context, words[i]);
    if (state != GOES_ON)
        return state;
    source[source_length] = 0;
    JSValue main = JS_Eval(context, source, source_length, file, JS_EVAL_TYPE_GLOBAL);
    free(source);
    if (JS_IsException(main))
        return threw();
    script = JS_Call(context, main, JS_UNDEFINED, 0, NULL);
    JS_FreeValue(context, main);
    return JS_IsException(script) ? threw() : GOES_ON;
}

/* Runs what can run, until nothing is left or the script ended. */
EXPORT("run") void run(void)
{
    JS_UpdateStackTop(runtime);
    JSContext *of;
    for (;;) {
        int state = JS_ExecutePendingJob(runtime, &of);
        if (state == 0)
            return;
        /* A job that threw where nobody listens; its error must not be taken for one of the next job. */
        if (state < 0) {
            JSValue thrown = JS_GetException(of);
            starved |= is_out_of_memory(thrown);
            JS_FreeValue(of, thrown);
        }
        if (JS_PromiseState(context, script) != JS_PROMISE_PENDING)
            return;
    }
}

EXPORT("ended") int ended(void)
{
    JS_UpdateStackTop(runtime);
    JSPromiseStateEnum state = JS_PromiseState(context, script);
    if (state == JS_PROMISE_PENDING)
        return GOES_ON;
    JSValue value = JS_PromiseResult(context, script);
    if (state == JS_PROMISE_REJECTED) {
        JS_Throw(context, value);
        return threw();
    }
    JSValueConst given[1] = { value };
    JSValue text = JS_Call(context, prelude_encode, JS_UNDEFINED, 1, given);
    JS_FreeValue(context, value);
    if (JS_IsException(text))
        return threw();
    int end = JS_IsString(text) ? RETURNED : JS_IsNumber(text) ? TOO_LONG : BROKEN;
    if (end != BROKEN && !say(SAY_VALUE, text))
        return threw();
    JS_FreeValue(context, text);
    return end;
}

EXPORT("settle") int settle(int32_t number, int32_t ok, char *text, size_t length)
{
    JS_UpdateStackTop(runtime);
    JSValue value = parsed(text, length);
    if (JS_IsException(value)) {
        JSValue thrown = JS_GetException(context);
        if (is_out_of_memory(thrown)) {
            JS_Throw(context, thrown);
            return threw();
        }
        JS_FreeValue(context, thrown);
        ok = 0;
        value = JS_NewObject(context);
        JS_SetPropertyStr(context, value, "code", JS_NewString(context, "invalid_result"));
        JS_SetPropertyStr(context, value, "message", JS_NewString(context, "the answer is not JSON"));
    }
    JSValueConst given[3] = { JS_NewInt32(context, number), JS_NewBool(context, ok), value };
    JSValue answered = JS_Call(context, prelude_settle, JS_UNDEFINED, 3, given);
    JS_FreeValue(context, value);
    return called(answered);
}

EXPORT("due") int due(int32_t number)
{
    JS_UpdateStackTop(runtime);
    JSValueConst given[1] = { JS_NewInt32(context, number) };
    return called(JS_Call(context, prelude_due, JS_UNDEFINED, 1, given));
}
