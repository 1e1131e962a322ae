// answers.cpp: MODEL QUESTION...: all questions at once, owners are unique_ptrs.
// c++ -std=c++17 answers.cpp $(pkg-config --cflags --libs quern)
#include <quern/quern.h>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

template <auto Free> struct Deleter {
    template <class T> void operator()(T *thing) const { Free(thing); }
};
using Model = std::unique_ptr<quern_model, Deleter<quern_model_free>>;
using Job = std::unique_ptr<quern_job, Deleter<quern_job_free>>;

int main(int argc, char **argv)
try {
    quern_error error;
    auto check = [&](quern_status status) {
        if (status)
            throw std::runtime_error(error.message);
    };
    quern_model *loaded;
    check(quern_model_load(&loaded, argc > 1 ? argv[1] : "", nullptr, &error));
    Model model(loaded);
    std::vector<Job> jobs; // computed side by side, from here on
    for (int i = 2; i < argc; i++) {
        std::string text = R"([{"role": "user", "content": ")" + std::string(argv[i]) + R"("}])";
        quern_request request;
        quern_request_init(&request, model.get());
        request.chat.messages = text.c_str(); // is copied
        request.sampling.temperature = 0;
        request.max_tokens = 32;
        quern_job *job;
        check(quern_submit(&job, model.get(), nullptr, &request, &error));
        jobs.emplace_back(job);
    }
    for (Job &job : jobs) {
        quern_event event;
        while (quern_job_next(job.get(), -1, &event) && event.type != QUERN_EVENT_DONE)
            if (event.type == QUERN_EVENT_TEXT)
                std::cout << event.text << std::flush;
        std::cout << '\n';
    }
} catch (const std::exception &e) {
    std::cerr << e.what() << '\n';
    return 1;
}
